// Whether every structure of the scheduler is sound.
#include <string>

#include "scheduler.h"

namespace pagemill {
namespace {

std::string named(const char* what, const Request& request) {
  return std::string(what) + " (request " + std::to_string(request.id) + ")";
}

}  // namespace

std::string Scheduler::check_request(const Request& r) const {
  const auto settled = static_cast<int32_t>(r.tokens.size());
  if (settled > r.known || r.known - settled >= Request::kRecent) {
    return named("tokens are lost", r);
  }
  const int32_t last = settled == r.known ? r.tokens.back() : r.recent[(r.known - 1) % r.kRecent];
  if (r.last_token != last) return named("stale last token", r);
  if (r.has_drafts != !r.drafts.empty()) return named("stale mark of drafts", r);
  if (r.known > r.limit) return named("more tokens than its limit", r);
  if (config_.enable_prefix_caching &&
      static_cast<int32_t>(r.hashes.size()) != r.known / config_.block_size) {
    return named("wrong number of block hashes", r);
  }
  if (r.capacity != static_cast<int32_t>(r.blocks.size()) * config_.block_size) {
    return named("capacity disagrees with its blocks", r);
  }
  if (r.state == RequestState::kWaiting) {
    if (!r.blocks.empty() || r.slot != -1 || r.in_flight != 0 || r.computed != 0) {
      return named("a waiting request holds something", r);
    }
    return "";
  }
  if (r.slot < 0) return named("no slot", r);
  if (r.tail_base != r.blocks.back() * config_.block_size) return named("stale tail block", r);
  if (r.registered * config_.block_size > std::min(r.computed + 1, r.known)) {
    return named("unverified tokens in the prefix index", r);
  }
  if (r.state == RequestState::kEnded) {
    return r.in_flight > 0 ? "" : named("an ended request lingers", r);
  }
  if (r.computed >= r.known + r.pending) return named("nothing left to compute", r);
  if (r.computed > r.capacity) return named("computed beyond its blocks", r);
  if (r.prefilling != (r.computed < r.known_at_start)) return named("wrong prefill mark", r);
  if (r.in_flight == 0 && (r.pending != 0 || r.uncertain)) return named("pending tokens", r);
  return "";
}

std::string Scheduler::check_integrity() const {
  if (std::string wrong = pool_.check_integrity(); !wrong.empty()) return wrong;
  if (std::string wrong = index_.check_integrity(); !wrong.empty()) return wrong;
  if (std::string wrong = policy_->check_integrity(); !wrong.empty()) return wrong;

  std::vector<int32_t> owners(config_.num_blocks, 0);
  std::vector<int32_t> holders(config_.max_num_seqs, 0);
  int64_t waiting = 0, running = 0, prefilling = 0, waiting_tokens = 0, in_flight = 0;
  for (const auto& [id, request] : requests_) {
    if (std::string wrong = check_request(*request); !wrong.empty()) return wrong;
    for (const BlockId block : request->blocks) ++owners[block];
    if (request->slot >= 0) ++holders[request->slot];
    in_flight += request->in_flight;
    prefilling += request->prefilling;
    if (request->state == RequestState::kWaiting) {
      ++waiting;
      waiting_tokens += request->known;
    }
    if (request->state != RequestState::kEnded && request->deadline < next_deadline_) {
      return named("a deadline is overlooked", *request);
    }
    running += request->state == RequestState::kRunning;
  }
  int64_t rows = 0;
  for (size_t i = 0; i < num_outstanding_; ++i) {
    const Plan& plan = *plans_[(first_plan_ + i) % plans_.size()];
    if (!plan.outstanding) return "an outstanding plan isn't marked";
    rows += plan.num_rows;
    for (const BlockId block : plan.copied) ++owners[block];
  }
  if (rows != in_flight) return "rows in flight don't add up";
  for (const int32_t slot : free_slots_) ++holders[slot];
  for (const int32_t count : holders) {
    if (count != 1) return "a slot is lost or held twice";
  }
  for (BlockId block = 0; block < config_.num_blocks; ++block) {
    if (owners[block] != pool_.count(block)) {
      return "block " + std::to_string(block) + " is counted " +
             std::to_string(pool_.count(block)) + " times, owned " +
             std::to_string(owners[block]) + " times";
    }
  }
  if (waiting != policy_->size()) return "the policy's queue has lost count";
  if (waiting_tokens != waiting_tokens_) return "waiting tokens don't add up";
  if (running != num_running()) return "the running list has lost count";
  if (prefilling != num_prefilling_) return "prefills don't add up";
  for (size_t i = 1; i < running_.size(); ++i) {
    if (!(running_[i - 1]->rank < running_[i]->rank)) return "running requests are out of order";
  }
  return "";
}

}  // namespace pagemill
