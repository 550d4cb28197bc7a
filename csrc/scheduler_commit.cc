// Applying a step's outcome, or undoing a step that failed.
#include <algorithm>
#include <stdexcept>

#include "scheduler.h"

namespace pagemill {
namespace {

constexpr int32_t kAhead = 8;  // rows between a prefetch and its use

// Thousands of requests don't fit the cache: they are fetched while earlier rows are at work.
inline void prefetch(const Plan& plan, int32_t row) {
  if (row + kAhead >= plan.num_rows) return;
  const Request* request = plan.rows[row + kAhead].request;
  __builtin_prefetch(request, 1);
  __builtin_prefetch(&request->recent, 1);
}

}  // namespace

void Scheduler::check_outcome(const Plan& plan, std::span<const int32_t> tokens,
                              std::span<const int32_t> counts,
                              std::span<const uint8_t> ends) const {
  const auto num_sampled = static_cast<size_t>(plan.num_sampled);
  if (counts.size() != num_sampled || ends.size() != num_sampled) {
    throw std::invalid_argument("counts and ends need one element per sampling row");
  }
  int64_t total = 0;
  int32_t fewest = 0, most = 0;
  for (const int32_t count : counts) {
    total += count;
    fewest = std::min(fewest, count);
    most = std::max(most, count);
  }
  bool fits = fewest >= 0;
  for (int32_t row = 0, i = 0; row < plan.num_rows && most > 1; ++row) {
    if (plan.sampled[row]) fits &= counts[i++] <= plan.num_drafts[row] + plan.passes[row];
  }
  if (!fits) throw std::invalid_argument("a row got more tokens than it had drafts and passes");
  if (total != static_cast<int64_t>(tokens.size())) {
    throw std::invalid_argument("counts don't add up to the number of tokens");
  }
  int32_t lowest = 0;
  for (const int32_t token : tokens) lowest = std::min(lowest, token);
  if (lowest < 0) throw std::invalid_argument("negative token id");
}

const Outcome& Scheduler::commit(Plan& plan, std::span<const int32_t> tokens,
                                 std::span<const int32_t> counts, std::span<const uint8_t> ends) {
  if (!plan.outstanding && plan.num_rows == 0) {
    check_outcome(plan, tokens, counts, ends);
    outcome_.clear();
    return outcome_;
  }
  if (!plan.outstanding || &plan != plans_[first_plan_].get()) {
    throw std::logic_error("only the oldest outstanding plan can be committed");
  }
  check_outcome(plan, tokens, counts, ends);
  outcome_.clear();
  ++counters_.commits;

  const int32_t* token = tokens.data();
  const int32_t* count_of = counts.data();
  const uint8_t* ends_of = ends.data();
  size_t copied_at = 0;
  bool any_ended = false;
  for (int32_t i = 0; i < plan.num_rows; ++i) {
    const int32_t usual = apply_tokens(plan, i, token, count_of, ends_of);
    i += usual;
    token += usual;
    count_of += usual;
    ends_of += usual;
    if (i == plan.num_rows) break;

    const Plan::Row& row = plan.rows[i];
    Request& request = *row.request;
    --request.in_flight;
    if (row.copied) drop_block(plan.copied[copied_at++]);
    if (plan.sampled[i]) {
      const int32_t count = *count_of++;
      const bool ends_here = *ends_of++ != 0;
      if (request.state != RequestState::kRunning || request.epoch != row.epoch) {
        counters_.tokens_discarded += count;
      } else {
        apply(request, plan.context_lens[i] - plan.num_drafts[i], plan.passes[i],
              {token, static_cast<size_t>(count)}, ends_here);
        any_ended |= request.state == RequestState::kEnded;
        if (request.next_hash_at <= request.known) unsettled_.push_back(&request);
      }
      token += count;
    }
    if (request.in_flight > 0) continue;
    if (request.state == RequestState::kEnded) {
      retiring_.push_back(&request);
    } else {
      give_back_spare(request);
    }
  }
  counters_.output_tokens += outcome_.num_tokens();
  if (any_ended) {
    std::erase_if(running_, [](const Request* r) { return r->state == RequestState::kEnded; });
  }
  settle_tokens();
  for (Request* request : retiring_) retire(*request, pending_ended_slots_);
  retiring_.clear();

  plan.outstanding = false;
  first_plan_ = (first_plan_ + 1) % plans_.size();
  --num_outstanding_;
  return outcome_;
}

void Scheduler::settle_tokens() {
  const size_t count = unsettled_.size();
  for (size_t i = 0; i < count; ++i) {
    if (i + 2 * kAhead < count) {
      __builtin_prefetch(&unsettled_[i + 2 * kAhead]->hashes);
      __builtin_prefetch(&unsettled_[i + 2 * kAhead]->tokens, 1);
    }
    if (i + kAhead < count) {
      const Request& soon = *unsettled_[i + kAhead];
      __builtin_prefetch(soon.hashes.data() + soon.hashes.size(), 1);
      __builtin_prefetch(soon.tokens.data() + soon.tokens.size(), 1);
    }
    unsettled_[i]->extend_hashes(config_.block_size);
  }
  unsettled_.clear();
}

// The usual outcome: a row without drafts brought one token, and the request goes on. The same as
// commit() and apply() do with any row, in a fraction of the time.
int32_t Scheduler::apply_tokens(const Plan& plan, int32_t row, const int32_t* tokens,
                                const int32_t* counts, const uint8_t* ends) {
  PlainOutcome outcome(outcome_, tokens);
  const int32_t first = row;
  for (; row < plan.num_rows; ++row, ++counts, ++ends) {
    prefetch(plan, row);
    const Plan::Row& planned = plan.rows[row];
    if (!planned.plain || *counts != 1 || *ends != 0) break;
    Request& request = *planned.request;
    const int32_t token = outcome.token();
    if (request.state != RequestState::kRunning || request.epoch != planned.epoch ||
        plan.context_lens[row] != request.known || request.uncertain ||
        request.known + 1 == request.limit || request.is_stop(token)) {
      break;
    }
    --request.in_flight;
    --request.pending;
    const bool full = request.append(token);
    if (full || request.next_hash_at <= request.known) unsettled_.push_back(&request);
    outcome.add(request.id);
    if (request.in_flight == 0) give_back_spare(request);
  }
  outcome.save(outcome_);
  return row - first;
}

void Scheduler::apply(Request& request, int32_t context_len, int32_t passes,
                      std::span<const int32_t> tokens, bool ends) {
  request.pending -= passes;
  request.uncertain = false;

  Finish finish = Finish::kNone;
  size_t taken = 0;
  while (taken < tokens.size() && finish == Finish::kNone) {
    const int32_t token = tokens[taken++];
    if (request.append(token)) request.settle();
    if (request.is_stop(token)) {
      finish = Finish::kStop;
    } else if (request.known == request.limit) {
      finish = Finish::kLength;
    }
  }
  if (ends && taken == tokens.size()) finish = Finish::kStop;

  counters_.tokens_discarded += static_cast<int64_t>(tokens.size() - taken);
  if (passes == 1 && taken > 1) counters_.drafts_accepted += static_cast<int64_t>(taken) - 1;

  // K/V exist for all known tokens but the last; the plan assumed that every pass brings one.
  const int32_t assumed = context_len + passes - 1;
  if (finish != Finish::kNone) {
    ++(finish == Finish::kStop ? counters_.finished_stop : counters_.finished_length);
    request.computed = request.known - 1;
    end_running(request);
  } else if (request.known - 1 != assumed) {
    request.computed += request.known - 1 - assumed;
    if (request.in_flight > 0 && static_cast<int32_t>(tokens.size()) < passes) {
      // A later plan counted on tokens that didn't come: its row is void.
      ++request.epoch;
      request.pending = 0;
      request.computed = request.known - 1;
    }
    set_prefilling(request, request.computed < request.known_at_start);
  }
  if (taken == 0 && finish == Finish::kNone) return;
  const int32_t at = outcome_.num_rows++;
  const int32_t start = outcome_.token_start[at];
  for (size_t i = 0; i < taken; ++i) outcome_.tokens[start + i] = tokens[i];
  outcome_.request_ids[at] = request.id;
  outcome_.token_start[at + 1] = start + static_cast<int32_t>(taken);
  outcome_.finish[at] = static_cast<int32_t>(finish);
}

void Scheduler::abandon(Plan& plan) {
  if (!plan.outstanding && plan.num_rows == 0) return;
  const size_t newest = (first_plan_ + num_outstanding_ + plans_.size() - 1) % plans_.size();
  if (!plan.outstanding || &plan != plans_[newest].get()) {
    throw std::logic_error("only the newest outstanding plan can be abandoned");
  }
  ++counters_.abandons;
  // Contents that the step should have brought are shown to nobody. What the plan evicted stays
  // evicted, and what it preempted stays preempted: the step may have overwritten their blocks.
  for (const BlockId block : plan.registered) index_.erase(block);
  // The executor may have missed what changed: it is told again.
  pending_ended_slots_.insert(pending_ended_slots_.begin(), plan.ended_slots.begin(),
                              plan.ended_slots.end());
  for (int32_t i = plan.num_rows - 1; i >= 0; --i) {
    undo(plan, i);
  }
  for (Request* request : retiring_) retire(*request, pending_ended_slots_);
  retiring_.clear();
  plan.outstanding = false;
  --num_outstanding_;
}

void Scheduler::undo(Plan& plan, int32_t at) {
  const Plan::Row& row = plan.rows[at];
  Request& request = *row.request;
  const int32_t computed_before = plan.positions[plan.query_start[at]];
  --request.in_flight;
  const bool current = request.epoch == row.epoch && request.state == RequestState::kRunning;
  for (int32_t i = 0; i < row.added_blocks; ++i) pop_block(request);
  if (row.copied) {
    // The plan's hold on the shared block becomes the request's again.
    BlockId& copy = request.blocks[computed_before / config_.block_size];
    drop_block(copy);
    copy = plan.copied.back();
    plan.copied.pop_back();
    request.tail_base = request.blocks.back() * config_.block_size;
    request.shared_tail = request.stale_table = true;
  }
  if (row.announced) request.untold = true;
  if (request.epoch == row.epoch) {
    request.computed = computed_before;
    request.registered = row.registered_before;
    if (plan.sampled[at] != 0) {
      request.pending -= plan.passes[at];
      request.uncertain = false;
    }
  }
  if (request.state == RequestState::kEnded) {
    if (request.in_flight == 0) retiring_.push_back(&request);
    return;
  }
  if (row.admitted) {
    std::erase(running_, &request);
    set_prefilling(request, false);
    give_up_slot(request, pending_ended_slots_);
    back_to_queue(request);
  } else if (current) {
    set_prefilling(request, request.computed < request.known_at_start);
  }
}

}  // namespace pagemill
