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

  // The scheduler's own notes on a row, two to a cache line.
  struct Row {
    Request* request;
    uint32_t epoch;
    int32_t computed_before;
    int32_t registered_before;
    int32_t num_tokens;
    BlockId copied;       // the shared block whose copy took its place, held until the step is over
    uint16_t added_blocks;
    bool announced;       // a fork's first row: its slot is among started_slots
    bool admitted;        // it left the waiting queue in this plan
  };
  std::vector<Row> rows;
  std::vector<BlockId> registered;  // blocks that entered the prefix index with this plan
  bool outstanding = false;

  void clear();
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

}  // namespace pagemill
