// One step's work as flat arrays, and what it takes to apply or undo it.
#pragma once

#include <cstdint>
#include <vector>

#include "request.h"
#include "scheduler_config.h"

namespace pagemill {

// The arrays live in buffers that are made once and used again; only the first num_rows or
// num_tokens elements count. See csrc/_core.pyi for the meaning of each.
struct Plan {
  explicit Plan(const SchedulerConfig& config);

  int32_t num_rows = 0;
  int32_t num_tokens = 0;
  int32_t num_sampled = 0;

  std::vector<int32_t> slots;
  std::vector<int32_t> query_start;
  std::vector<int32_t> context_lens;
  std::vector<uint8_t> sampled;
  std::vector<int32_t> num_drafts;
  std::vector<int32_t> passes;

  std::vector<int32_t> token_ids;
  std::vector<int32_t> positions;
  std::vector<int32_t> slot_mapping;

  std::vector<int32_t> started_slots;
  std::vector<int64_t> started_ids;
  std::vector<int32_t> ended_slots;
  std::vector<int32_t> table_slots;
  std::vector<int32_t> table_indices;
  std::vector<int32_t> table_blocks;
  std::vector<int32_t> copy_src;
  std::vector<int32_t> copy_dst;
  std::vector<int64_t> ended_ids;
  std::vector<int32_t> ended_reasons;

  // The scheduler's own notes on a row, four to a cache line; the arrays above tell the rest.
  struct Row {
    Request* request;
    int32_t registered_before;
    uint16_t epoch;
    uint16_t added_blocks : 12;
    uint16_t plain : 1;      // added by PlainRows
    uint16_t copied : 1;     // a shared block was copied: see `copied` of the plan
    uint16_t announced : 1;  // a fork's first row: its slot is among started_slots
    uint16_t admitted : 1;   // it left the waiting queue in this plan
  };
  std::vector<Row> rows;
  std::vector<BlockId> copied;  // by row: the blocks that were copied, held until the step is over
  std::vector<BlockId> registered;  // blocks that entered the prefix index with this plan
  bool outstanding = false;

  void clear();
};

// Adds rows of one query token that sample once, without drafts, to the end of a plan. It keeps
// the plan's buffers at hand and writes what differs from row to row; save() fills in the rest,
// and must be called before anybody else looks at the plan.
class PlainRows {
 public:
  explicit PlainRows(Plan& plan)
      : rows_(plan.rows.data() + plan.num_rows),
        slots_(plan.slots.data() + plan.num_rows),
        context_lens_(plan.context_lens.data() + plan.num_rows),
        token_ids_(plan.token_ids.data() + plan.num_tokens),
        slot_mapping_(plan.slot_mapping.data() + plan.num_tokens) {}

  void add(const Plan::Row& row, int32_t slot, int32_t token, int32_t position,
           int32_t cache_slot) {
    rows_[added_] = row;
    slots_[added_] = slot;
    context_lens_[added_] = position + 1;
    token_ids_[added_] = token;
    slot_mapping_[added_] = cache_slot;
    ++added_;
  }

  void save(Plan& plan) const;

 private:
  Plan::Row* rows_;
  int32_t* slots_;
  int32_t* context_lens_;
  int32_t* token_ids_;
  int32_t* slot_mapping_;
  int32_t added_ = 0;
};

// What a step brought, per sampling row that got tokens or ended.
struct Outcome {
  int32_t num_rows = 0;
  std::vector<int64_t> request_ids;
  std::vector<int32_t> token_start;
  std::vector<int32_t> tokens;
  std::vector<int32_t> finish;

  void reserve(size_t rows, size_t num_tokens);
  void clear() { num_rows = 0; }  // token_start[0] is always 0
  int32_t num_tokens() const { return token_start[num_rows]; }
};

// Adds requests that got one token each, one after the other in `tokens`, and go on; as PlainRows
// does it.
class PlainOutcome {
 public:
  PlainOutcome(Outcome& outcome, const int32_t* tokens)
      : request_ids_(outcome.request_ids.data() + outcome.num_rows), tokens_(tokens) {}

  int32_t token() const { return tokens_[added_]; }  // of the request that add() takes next
  void add(int64_t request_id) { request_ids_[added_++] = request_id; }
  void save(Outcome& outcome) const;

 private:
  int64_t* request_ids_;
  const int32_t* tokens_;
  int32_t added_ = 0;
};

}  // namespace pagemill
