// Choosing a step's work: running requests first, then waiting ones, within one token budget.
#include <algorithm>
#include <limits>
#include <stdexcept>

#include "scheduler.h"

namespace pagemill {
namespace {

constexpr size_t kAhead = 8;  // requests between a prefetch and its use

}  // namespace

Plan& Scheduler::plan(double now) {
  if (num_outstanding_ == static_cast<size_t>(config_.max_outstanding_plans)) {
    throw std::logic_error("commit or abandon the outstanding plan first");
  }
  Plan& plan = *plans_[(first_plan_ + num_outstanding_) % plans_.size()];
  plan.clear();
  plan.ended_slots.swap(pending_ended_slots_);
  plan.ended_ids.swap(pending_ended_ids_);
  plan.ended_reasons.swap(pending_ended_reasons_);
  ++counters_.plans;

  if (now >= next_lease_) expire_leases(plan, now);
  if (now >= next_deadline_) expire_waiting(plan, now);
  const bool preempted = schedule_running(plan, now);
  // A cache too full for those that run has no room for more.
  if (!preempted) schedule_waiting(plan);

  counters_.rows += plan.num_rows;
  counters_.scheduled_tokens += plan.num_tokens;
  if (plan.num_rows > 0) {
    plan.outstanding = true;
    ++num_outstanding_;
  }
  return plan;
}

void Scheduler::report_deadline(Plan& plan, const Request& request) {
  ++counters_.deadline_missed;
  plan.ended_ids.push_back(request.id);
  plan.ended_reasons.push_back(static_cast<int32_t>(Finish::kDeadline));
}

void Scheduler::expire_waiting(Plan& plan, double now) {
  std::vector<Request*> expired;
  next_deadline_ = std::numeric_limits<double>::infinity();
  for (const auto& [id, request] : requests_) {
    if (request->state != RequestState::kWaiting) continue;
    if (now >= request->deadline) {
      expired.push_back(request.get());
    } else {
      next_deadline_ = std::min(next_deadline_, request->deadline);
    }
  }
  // The map's order isn't part of the contract; ids are.
  std::sort(expired.begin(), expired.end(),
            [](const Request* a, const Request* b) { return a->id < b->id; });
  for (Request* request : expired) {
    report_deadline(plan, *request);
    end(*request, plan.ended_slots);
  }
}

int32_t Scheduler::chunk(int32_t wanted, int32_t room) const {
  int32_t tokens = std::min(wanted, room);
  const int32_t cap = config_.long_prefill_token_threshold;
  if (!config_.enable_chunked_prefill) return tokens < wanted ? 0 : tokens;
  if (cap > 0) tokens = std::min(tokens, cap);
  return std::max(tokens, 0);
}

bool Scheduler::schedule_running(Plan& plan, double now) {
  bool preempted = false;
  // Every decoding request is sure of a token: prompt chunks get what is left.
  decoding_left_ = num_running() - num_prefilling_;
  size_t kept = 0;
  for (size_t at = 0; at < running_.size(); ++at) {
    if (at + kAhead < running_.size()) __builtin_prefetch(running_[at + kAhead], 1);
    Request* const request = running_[at];
    if (request == nullptr) continue;  // gave way to one before it
    if (!request->prefilling) --decoding_left_;
    if (now >= request->deadline) {
      report_deadline(plan, *request);
      end_running(*request);
      if (request->in_flight == 0) retire(*request, plan.ended_slots);
      continue;
    }
    if (place_token(plan, *request)) {
      running_[kept++] = request;
      continue;
    }
    const Placement placed = place(plan, *request, at);
    preempted |= placed.preempted_other || placed.preempted_itself;
    if (!placed.preempted_itself) running_[kept++] = request;
  }
  running_.resize(kept);
  return preempted;
}

// The usual row: one token of a decoding request, into a block that it has. The same as place(),
// in a fraction of the time.
inline bool Scheduler::place_token(Plan& plan, Request& request) {
  const bool special = request.prefilling | request.uncertain | request.shared_tail |
                       request.untold | request.stale_table | (request.num_drafts != 0) |
                       (request.multi_step && config_.num_scheduler_steps > 1);
  const int32_t position = request.computed;
  const int32_t tail_start = request.capacity - config_.block_size;
  if (special || position < tail_start || position >= request.capacity) return false;
  if (request.known + request.pending >= request.limit) return true;  // no row: it is about to end

  const int32_t at = plan.num_rows++;
  const int32_t flat = plan.num_tokens++;
  plan.rows[at] = {&request, request.epoch, position, request.registered, 1, kNoBlock, 0, false,
                   false};
  plan.slots[at] = request.slot;
  plan.context_lens[at] = position + 1;
  plan.sampled[at] = 1;
  plan.num_drafts[at] = 0;
  plan.passes[at] = 1;
  plan.query_start[at + 1] = flat + 1;
  plan.token_ids[flat] = position < request.known ? request.last_token : -1;
  plan.positions[flat] = position;
  plan.slot_mapping[flat] = request.tail_base + position - tail_start;
  ++plan.num_sampled;
  request.computed = position + 1;
  ++request.in_flight;
  ++request.pending;
  register_blocks(request, &plan.registered);
  return true;
}

Scheduler::Placement Scheduler::place(Plan& plan, Request& request, size_t at) {
  Placement placed;
  const int32_t end = request.known + request.pending;
  // How many drafts of a step in flight will hold is open, so is where the next step starts;
  // and a request that will be at its limit needs no further step.
  if (request.uncertain || end >= request.limit) return placed;

  const int32_t room = budget(plan) - decoding_left_;
  int32_t tokens = end - request.computed;
  int32_t drafts = 0;
  int32_t passes = 1;
  if (request.prefilling) {
    tokens = chunk(tokens, room);
    if (tokens == 0) return placed;
  } else {
    if (request.pending == 0) {
      drafts = std::max(0, std::min({request.num_drafts, room - 1, request.limit - end - 1}));
    }
    if (request.num_drafts == 0 && request.multi_step) {
      passes = std::min(config_.num_scheduler_steps, request.limit - end);
    }
  }

  const int32_t must_hold = request.computed + tokens;
  int32_t added = 0;
  BlockId copied = kNoBlock;
  while (request.capacity < must_hold || request.shared_tail) {
    if (request.shared_tail && !must_copy(plan, request)) {
      request.shared_tail = false;
      continue;
    }
    if (pool_.num_free() > 0) {
      if (request.shared_tail) {
        copied = copy_tail(plan, request);
        request.shared_tail = false;
      } else {
        append_block(plan, request, take_block());
        ++added;
      }
      continue;
    }
    const size_t other = victim(at);
    if (other < running_.size()) {
      if (!running_[other]->prefilling) --decoding_left_;
      preempt(plan, *running_[other]);
      running_[other] = nullptr;
      placed.preempted_other = true;
      continue;
    }
    if (num_outstanding_ > 0) {  // blocks may come back when the step in flight is over
      ++counters_.stalls;
      return placed;
    }
    preempt(plan, request);
    placed.preempted_itself = true;
    return placed;
  }
  // Drafts and further passes take free blocks only: nobody gives way to a guess.
  const int32_t wanted = must_hold + drafts + passes - 1;
  while (request.capacity < wanted && pool_.num_free() > 0) {
    append_block(plan, request, take_block());
    ++added;
  }
  const int32_t spare = request.capacity - must_hold;
  drafts = std::min(drafts, spare);
  passes = std::min(passes, spare + 1);

  Plan::Row& row = plan.rows[plan.num_rows];
  row = {&request, request.epoch, request.computed,             request.registered,
         tokens,   copied,        static_cast<uint16_t>(added), request.untold,
         false};
  if (request.untold || request.stale_table) retell(plan, request);
  emit(plan, request, tokens, drafts, passes);
  return placed;
}

size_t Scheduler::victim(size_t after) const {
  // The last in line that has got on since it started; else the last in line at all.
  size_t last = running_.size();
  for (size_t at = running_.size() - 1; at > after; --at) {
    const Request* request = running_[at];
    if (request == nullptr || request->in_flight > 0) continue;
    if (request->known > request->known_at_start) return at;
    if (last == running_.size()) last = at;
  }
  return last;
}

void Scheduler::preempt(Plan& plan, Request& request) {
  ++counters_.preemptions;
  request.was_preempted = true;
  set_prefilling(request, false);
  register_blocks(request, nullptr);
  give_up_slot(request, plan.ended_slots);
  back_to_queue(request);
}

void Scheduler::back_to_queue(Request& request) {
  release_blocks(request);
  request.computed = 0;
  request.pending = 0;
  counters_.drafts_dropped += request.num_drafts;
  request.num_drafts = 0;
  request.shared_tail = request.untold = request.stale_table = false;
  ++request.epoch;
  queue(request);
  policy_->requeue(request);
}

void Scheduler::emit(Plan& plan, Request& request, int32_t tokens, int32_t drafts, int32_t passes) {
  const int32_t start = request.computed;
  const int32_t row = plan.num_rows++;
  const bool sampled = start + tokens == request.known + request.pending;
  const int32_t count = tokens + drafts;
  plan.slots[row] = request.slot;
  plan.context_lens[row] = start + count;
  plan.sampled[row] = sampled;
  plan.num_drafts[row] = drafts;
  plan.passes[row] = passes;

  // Positions up to the last block's start are found through the block table, the rest directly.
  int32_t flat = plan.num_tokens;
  const int32_t bs = config_.block_size;
  const int32_t tail_start = request.capacity - bs;
  int32_t block_end = 0;  // position after the block that `base` is for
  int32_t base = 0;
  for (int32_t position = start; position < start + count; ++position, ++flat) {
    if (position >= block_end) {
      if (position >= tail_start) {
        base = request.tail_base - tail_start;
        block_end = request.capacity;
      } else {
        const int32_t block = position / bs;
        base = (request.blocks[block] - block) * bs;
        block_end = (block + 1) * bs;
      }
    }
    plan.positions[flat] = position;
    plan.slot_mapping[flat] = base + position;
  }
  flat = plan.num_tokens;
  for (int32_t i = 0; i < tokens; ++i, ++flat) {
    const int32_t position = start + i;
    // A token that a step in flight is still to sample: the executor puts it in.
    plan.token_ids[flat] = position < request.known ? request.tokens[position] : -1;
  }
  for (int32_t i = 0; i < drafts; ++i, ++flat) plan.token_ids[flat] = request.drafts[i];
  plan.num_tokens = flat;
  plan.query_start[plan.num_rows] = flat;

  request.computed = start + tokens;
  ++request.in_flight;
  if (sampled) {
    ++plan.num_sampled;
    request.computed += passes - 1;
    request.pending += passes;
    request.uncertain = drafts > 0;
    counters_.drafted_tokens += drafts;
    counters_.drafts_dropped += request.num_drafts - drafts;
    request.num_drafts = 0;
  } else {
    ++counters_.prefill_chunks;
  }
  if (request.prefilling) set_prefilling(request, request.computed < request.known_at_start);
  // Registered before the step runs: the whole batch's K/V of a layer is written before any
  // attention reads it, so requests that start with this very plan may share the blocks.
  register_blocks(request, &plan.registered);
}

}  // namespace pagemill
