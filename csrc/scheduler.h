// The unified token-budget scheduler.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "block_pool.h"
#include "plan.h"
#include "policy.h"
#include "prefix_index.h"
#include "request.h"
#include "request_pool.h"
#include "scheduler_config.h"

namespace pagemill {

// What a caller asks for. Times are seconds on the caller's clock, the one that plan() is given.
struct Submission {
  int64_t id = 0;
  std::span<const int32_t> token_ids;
  int32_t max_tokens = 1;
  std::span<const int32_t> stop_token_ids;
  int64_t priority = 0;
  uint64_t salt = 0;
  int32_t salt_from = 0;
  int64_t tenant = 0;
  int64_t tag = 0;
  int64_t adapter = 0;
  int64_t client = 0;
  double arrival = 0;
  double deadline = std::numeric_limits<double>::infinity();
  bool multi_step = true;
  bool admitted = false;  // part of what was admitted: the limits of the queue don't count
};

// Each decision is counted; counters only grow.
struct Counters {
  int64_t requests_added = 0, requests_refused = 0, requests_started = 0, requests_resumed = 0;
  int64_t finished_stop = 0, finished_length = 0, cancelled = 0, deadline_missed = 0;
  int64_t leases_expired = 0;  // of clients that had requests left
  int64_t forks = 0, forks_shared = 0;
  int64_t plans = 0, commits = 0, abandons = 0, rows = 0, preemptions = 0, stalls = 0;
  int64_t prompt_tokens = 0, prefill_chunks = 0, scheduled_tokens = 0, output_tokens = 0;
  int64_t drafted_tokens = 0, drafts_accepted = 0, drafts_dropped = 0;
  int64_t prefix_queries = 0, prefix_hits = 0;  // tokens
  int64_t blocks_allocated = 0, blocks_evicted = 0, blocks_copied = 0;
  int64_t tokens_discarded = 0;  // sampled for a request that had ended, or under an old epoch
};

// Decides which tokens of which request each step computes. One token budget, no phases: every
// request's `computed` chases its `known` tokens; running requests first, then waiting ones.
//
// plan() reserves and advances, commit() applies the outcome, abandon() undoes a plan whose step
// failed. Plans are committed in the order they were made and abandoned in the opposite order.
// Blocks and slots are released only when no outstanding plan refers to them: by a commit row by
// row (a copied block's original, then what was reserved in vain), then request by ended request;
// by abandon() from the last row back. An exception leaves the state as it was. One thread at a
// time; equal calls give equal plans.
class Scheduler {
 public:
  explicit Scheduler(const SchedulerConfig& config);
  ~Scheduler();

  Refusal add(const Submission& submission);
  bool cancel(int64_t request_id);

  // A second request that goes on from a place on the way of `parent`: its first `keep` tokens (-1:
  // all of them), limit and rights. `last_token` >= 0 takes the place of the last of them. A parent
  // that is decoding, with no row in an outstanding plan, shares its blocks if a slot is free: a
  // block that both would write, or that others may look up, is copied by whoever writes first.
  // Else the child queues, whatever the limits of the queue, and finds the blocks through the
  // prefix index.
  Refusal fork(int64_t parent_id, int64_t child_id, int32_t keep, int32_t last_token);

  // A client's requests live while its lease does: at `until` the rest of them are cancelled.
  // Clients that never took a lease have none to lose.
  void renew(int64_t client, double until);

  // Guesses at the next tokens of a request, for the next plan that samples for it: a prompt's last
  // chunk takes them along. False, and nothing happens, when the request has ended or an outstanding
  // plan has a row of it. They are lost when it is preempted.
  bool propose(int64_t request_id, std::span<const int32_t> drafts);

  Plan& plan(double now);
  const Outcome& commit(Plan& plan, std::span<const int32_t> tokens,
                        std::span<const int32_t> counts, std::span<const uint8_t> ends);
  void abandon(Plan& plan);

  const SchedulerConfig& config() const { return config_; }
  int32_t num_waiting() const { return policy_->size(); }
  int32_t num_running() const { return static_cast<int32_t>(running_.size()); }
  int32_t num_free_blocks() const { return pool_.num_free(); }
  const BlockPool& pool() const { return pool_; }
  const PrefixIndex& index() const { return index_; }
  const Counters& counters() const { return counters_; }
  // The blocks of a request, first to last; empty when it is unknown or waiting.
  std::vector<BlockId> blocks_of(int64_t request_id) const;

  // Tokens looked up and found in the prefix cache, by tag; beyond kMaxTags tags under -1.
  struct TagHits {
    int64_t queries = 0;
    int64_t hits = 0;
  };
  const std::map<int64_t, TagHits>& prefix_stats() const { return tag_hits_; }
  static constexpr size_t kMaxTags = 1024;

  // Empty when every structure is sound, else what is wrong. Slow: for tests and idle moments.
  std::string check_integrity() const;

 private:
  // scheduler_plan.cc: choosing.
  struct Placement {
    bool preempted_other = false;
    bool preempted_itself = false;
  };
  void expire_deadlines(Plan& plan, double now);
  void expire_leases(Plan& plan, double now);
  void end_all(Plan& plan, std::vector<Request*>& requests, Finish reason);
  Refusal room_in_queue(int64_t tokens) const;
  bool schedule_running(Plan& plan);  // true when something was preempted
  // From index `at` of running_ on; moves those placed to index `kept` and on.
  size_t place_tokens(Plan& plan, size_t at, size_t& kept);
  Placement place(Plan& plan, Request& request, size_t at);  // at: its index in running_
  int32_t chunk(int32_t wanted, int32_t room) const;
  int32_t most_drafts(const Request& request, int32_t room) const;
  void drop_drafts(Request& request, int32_t used);
  void emit(Plan& plan, Request& request, int32_t tokens, int32_t drafts, int32_t passes);
  int32_t budget(const Plan& plan) const {
    return config_.max_num_batched_tokens - plan.num_tokens;
  }

  // scheduler_preempt.cc: giving way.
  size_t victim(size_t after) const;  // index in running_, or running_.size()
  void preempt(Plan& plan, Request& request);
  void back_to_queue(Request& request);

  // scheduler_admission.cc: starting.
  void schedule_waiting(Plan& plan);
  bool try_start(Plan& plan, Request& request);
  void join_running(Request& request);
  void count_hits(const Request& request, int32_t cached);

  // scheduler_blocks.cc, scheduler_fork.cc: blocks and the prefix index.
  int32_t blocks_for(int32_t tokens) const {
    return (tokens + config_.block_size - 1) / config_.block_size;
  }
  int32_t find_prefix(const Request& request);  // fills hits_
  BlockId take_block();
  void take_blocks(int32_t count, std::vector<BlockId>& blocks);  // adds them to the end
  void append_block(Plan& plan, Request& request, BlockId block);
  void append_blocks(Plan& plan, Request& request, std::span<const BlockId> blocks);
  void pop_block(Request& request);
  // Whether full blocks of verified, computed tokens wait to be offered to the index.
  bool has_full_blocks(const Request& request) const {
    // Drafts and placeholders lie at or after `known`: they are never shown to others.
    const int32_t verified = std::min(request.computed, request.known);
    return config_.enable_prefix_caching &&
           (request.registered + 1) * config_.block_size <= verified;
  }
  // Offers them; notes in `log` which the index took.
  void register_blocks(Request& request, std::vector<BlockId>* log) {
    if (has_full_blocks(request)) register_full_blocks(request, log);
  }
  void register_rows(Plan& plan);  // those of full_
  void drop_block(BlockId block);
  // Whether the block that the request writes next isn't its alone.
  bool must_copy(const Plan& plan, const Request& request) const;
  BlockId copy_tail(Plan& plan, Request& request);  // returns the block that was shared
  void retell(Plan& plan, Request& request);
  void share_blocks(Request& parent, Request& child);
  void register_full_blocks(Request& request, std::vector<BlockId>* log);
  void release_blocks(Request& request);
  void give_up_slot(Request& request, std::vector<int32_t>& ended_slots);

  // scheduler_commit.cc: applying and undoing.
  void check_outcome(const Plan& plan, std::span<const int32_t> tokens,
                     std::span<const int32_t> counts, std::span<const uint8_t> ends) const;
  // A plan's rows from `row` on whose outcome is the usual one; returns how many.
  int32_t apply_tokens(const Plan& plan, int32_t row, const int32_t* tokens, const int32_t* counts,
                       const uint8_t* ends);
  void settle_tokens();  // those of unsettled_
  // `context_len` is what the row's K/V reached, drafts left out.
  void apply(Request& request, int32_t context_len, int32_t passes,
             std::span<const int32_t> tokens, bool ends);
  void undo(Plan& plan, int32_t at);
  // Blocks reserved for drafts and passes that came to nothing.
  void give_back_spare(Request& request) {
    while (request.capacity - config_.block_size >= request.known) pop_block(request);
  }
  // A request ends before its time, waiting or running.
  void end(Request& request, std::vector<int32_t>& ended_slots);
  void end_running(Request& request);
  void retire(Request& request, std::vector<int32_t>& ended_slots);  // forgets an ended request
  void set_prefilling(Request& request, bool prefilling);
  void forget(Request& request);
  void queue(Request& request);
  void leave_queue(Request& request);

  std::string check_request(const Request& request) const;  // scheduler_integrity.cc

  SchedulerConfig config_;
  BlockPool pool_;
  PrefixIndex index_;
  std::unique_ptr<Policy> policy_;
  RequestPool store_;
  std::unordered_map<int64_t, Request*> requests_;
  std::vector<Request*> running_;  // by rank
  std::vector<int32_t> free_slots_;
  int64_t waiting_tokens_ = 0;
  int32_t num_prefilling_ = 0;
  double next_deadline_;              // no request is due before this time
  std::map<int64_t, double> leases_;  // client -> until
  double next_lease_;                 // no lease ends before this time

  std::vector<std::unique_ptr<Plan>> plans_;  // a ring: first_plan_ is the oldest outstanding
  size_t first_plan_ = 0;
  size_t num_outstanding_ = 0;
  Outcome outcome_;

  // For the next plan.
  std::vector<int32_t> pending_ended_slots_;
  std::vector<int64_t> pending_ended_ids_;
  std::vector<int32_t> pending_ended_reasons_;

  std::vector<BlockId> hits_;       // scratch of find_prefix() and try_start()
  std::vector<Request*> full_;      // scratch of plan(): running requests with blocks to register
  std::vector<Request*> retiring_;  // scratch of commit()
  std::vector<Request*> unsettled_;  // scratch of commit(): requests whose newest tokens fill up
  int32_t decoding_left_ = 0;        // scratch of plan(): decoding requests not placed yet
  Counters counters_;
  std::map<int64_t, TagHits> tag_hits_;
};

}  // namespace pagemill
