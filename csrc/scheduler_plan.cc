// Choosing a step's work: running requests first, then waiting ones, within one token budget.
#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "scheduler.h"

namespace pagemill {
namespace {

constexpr size_t kAhead = 6;  // requests between a prefetch and its use

// Thousands of requests don't fit the cache: what a row touches is fetched while earlier ones are
// at work, in the order in which one thing leads to the next.
inline void prefetch(const std::vector<Request*>& running, size_t at) {
  const auto full = [](const Request* request) {
    return request != nullptr && request->computed == request->capacity;
  };
  if (at + 3 * kAhead >= running.size()) return;
  __builtin_prefetch(running[at + 3 * kAhead], 1);
  if (full(running[at + 2 * kAhead])) __builtin_prefetch(&running[at + 2 * kAhead]->blocks, 1);
  if (full(running[at + kAhead])) __builtin_prefetch(&*running[at + kAhead]->blocks.end(), 1);
}

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
  if (now >= next_deadline_) expire_deadlines(plan, now);
  const bool preempted = schedule_running(plan);
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

void Scheduler::expire_deadlines(Plan& plan, double now) {
  std::vector<Request*> expired;
  next_deadline_ = std::numeric_limits<double>::infinity();
  for (const auto& [id, request] : requests_) {
    if (request->state == RequestState::kEnded) continue;
    if (now >= request->deadline) {
      expired.push_back(request);
    } else {
      next_deadline_ = std::min(next_deadline_, request->deadline);
    }
  }
  counters_.deadline_missed += static_cast<int64_t>(expired.size());
  end_all(plan, expired, Finish::kDeadline);
}

void Scheduler::end_all(Plan& plan, std::vector<Request*>& requests, Finish reason) {
  // The order in which they were found isn't part of the contract; ids are.
  std::sort(requests.begin(), requests.end(),
            [](const Request* a, const Request* b) { return a->id < b->id; });
  for (Request* request : requests) {
    plan.ended_ids.push_back(request->id);
    plan.ended_reasons.push_back(static_cast<int32_t>(reason));
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

bool Scheduler::schedule_running(Plan& plan) {
  bool preempted = false;
  // Every decoding request is sure of a token: prompt chunks get what is left.
  decoding_left_ = num_running() - num_prefilling_;
  size_t kept = 0;
  for (size_t at = 0; at < running_.size(); ++at) {
    at = place_tokens(plan, at, kept);
    if (at == running_.size()) break;
    Request* const request = running_[at];
    if (request == nullptr) continue;  // gave way to one before it
    if (!request->prefilling) --decoding_left_;
    const Placement placed = place(plan, *request, at);
    preempted |= placed.preempted_other || placed.preempted_itself;
    if (!placed.preempted_itself) running_[kept++] = request;
  }
  running_.resize(kept);
  // Registered before the step runs: the whole batch's K/V of a layer is written before any
  // attention reads it, so requests that start with this very plan may share the blocks.
  register_rows(plan);
  return preempted;
}

// The usual rows: one token of a decoding request, into the block that it has or a free one. The
// same as place(), in a fraction of the time. Returns the first request that needs place().
size_t Scheduler::place_tokens(Plan& plan, size_t at, size_t& kept) {
  const int32_t block_size = config_.block_size;
  const bool several_passes = config_.num_scheduler_steps > 1;
  PlainRows rows(plan);
  const size_t first = kept;
  size_t to = kept;
  for (; at < running_.size(); ++at) {
    prefetch(running_, at);
    Request* const request = running_[at];
    if (request == nullptr) break;
    Request& r = *request;
    if (r.prefilling || r.uncertain || r.shared_tail || r.untold || r.stale_table ||
        r.has_drafts || (several_passes && r.multi_step)) {
      break;
    }
    const int32_t position = r.computed;
    int32_t offset = position - (r.capacity - block_size);  // in the last block
    if (offset < 0 || offset > block_size) break;
    if (r.known + r.pending < r.limit) {  // else no row: it is about to end
      const bool grows = offset == block_size;
      if (grows) {
        if (pool_.num_free() == 0) break;
        append_block(plan, r, take_block());
        offset = 0;
      }
      rows.add({request, r.registered, r.epoch, grows, true, false, false, false}, r.slot,
               position < r.known ? r.last_token : -1, position, r.tail_base + offset);
      r.computed = position + 1;
      ++r.in_flight;
      ++r.pending;
      if (has_full_blocks(r)) full_.push_back(request);
    }
    if (to != at) running_[to] = request;
    ++to;
  }
  rows.save(plan);
  decoding_left_ -= static_cast<int32_t>(to - first);
  kept = to;
  return at;
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
  } else if (request.drafts.empty() && request.multi_step) {
    passes = std::min(config_.num_scheduler_steps, request.limit - end);
  }
  // A prompt's last chunk takes drafts along: its tokens are chosen in the same pass.
  if (request.pending == 0 && request.computed + tokens == end) {
    drafts = most_drafts(request, room - tokens);
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

  if (copied != kNoBlock) plan.copied.push_back(copied);
  plan.rows[plan.num_rows] = {
      &request, request.registered, request.epoch,  static_cast<uint16_t>(added),
      false,    copied != kNoBlock, request.untold, false};
  if (request.untold || request.stale_table) retell(plan, request);
  emit(plan, request, tokens, drafts, passes);
  if (has_full_blocks(request)) full_.push_back(&request);
  return placed;
}

// Of the drafts proposed for a request, those that its limit and `room` in the plan leave.
int32_t Scheduler::most_drafts(const Request& request, int32_t room) const {
  const auto proposed = static_cast<int32_t>(request.drafts.size());
  return std::max(0, std::min({proposed, room, request.limit - request.known - 1}));
}

void Scheduler::drop_drafts(Request& request, int32_t used) {
  if (!request.has_drafts) return;
  counters_.drafts_dropped += static_cast<int64_t>(request.drafts.size()) - used;
  request.drafts.clear();
  request.has_drafts = false;
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

  const int32_t flat = plan.num_tokens;
  const int32_t bs = config_.block_size;
  std::iota(&plan.positions[flat], &plan.positions[flat] + count, start);
  for (int32_t position = start; position < start + count;) {
    const int32_t block = position / bs;
    const int32_t end = std::min((block + 1) * bs, start + count);
    const int32_t base = (request.blocks[block] - block) * bs;
    int32_t* const out = &plan.slot_mapping[flat + position - start];
    std::iota(out, out + end - position, base + position);
    position = end;
  }
  // A token that a step in flight is still to sample: the executor puts it in.
  request.settle();
  const int32_t known = std::clamp(request.known - start, 0, tokens);
  int32_t* out = std::copy_n(request.tokens.data() + start, known, &plan.token_ids[flat]);
  out = std::fill_n(out, tokens - known, -1);
  std::copy_n(request.drafts.begin(), drafts, out);
  plan.num_tokens = flat + count;
  plan.query_start[plan.num_rows] = plan.num_tokens;

  request.computed = start + tokens;
  ++request.in_flight;
  if (sampled) {
    ++plan.num_sampled;
    request.computed += passes - 1;
    request.pending += passes;
    request.uncertain = drafts > 0;
    counters_.drafted_tokens += drafts;
    drop_drafts(request, drafts);
  } else {
    ++counters_.prefill_chunks;
  }
  if (request.prefilling) set_prefilling(request, request.computed < request.known_at_start);
}

}  // namespace pagemill
