#include "scheduler.h"

#include <cmath>
#include <limits>
#include <stdexcept>

namespace pagemill {
namespace {

constexpr int32_t kShort = 256;
constexpr double kNever = std::numeric_limits<double>::infinity();

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

}  // namespace

void SchedulerConfig::validate() const {
  require(num_blocks >= 1, "num_blocks must be at least 1");
  require(block_size >= 1 && block_size <= 1024, "block_size must be in 1..1024");
  require(num_blocks <= std::numeric_limits<int32_t>::max() / block_size,
          "num_blocks * block_size must fit an int32");
  require(max_num_seqs >= 1, "max_num_seqs must be at least 1");
  require(max_num_batched_tokens >= max_num_seqs,
          "max_num_batched_tokens must be at least max_num_seqs: each running request needs one");
  require(max_model_len >= 2, "max_model_len must be at least 2");
  require(enable_chunked_prefill || max_num_batched_tokens >= max_model_len,
          "without chunked prefill max_num_batched_tokens must be at least max_model_len");
  require(long_prefill_token_threshold >= 0, "long_prefill_token_threshold must not be negative");
  require(max_partial_prefills >= 0, "max_partial_prefills must not be negative");
  require(std::isfinite(ageing_s) && ageing_s >= 0, "ageing_s must be finite and not negative");
  require(fair_quantum >= 1, "fair_quantum must be at least 1");
  require(group_size >= 1, "group_size must be at least 1");
  require(watermark_blocks >= 0 && watermark_blocks < num_blocks,
          "watermark_blocks must be in 0..num_blocks-1");
  require(max_waiting_requests >= 1, "max_waiting_requests must be at least 1");
  require(max_waiting_tokens >= 1, "max_waiting_tokens must be at least 1");
  require(num_scheduler_steps >= 1 && num_scheduler_steps <= 64,
          "num_scheduler_steps must be in 1..64");
  require(max_outstanding_plans >= 1 && max_outstanding_plans <= 2,
          "max_outstanding_plans must be 1 or 2");
}

Scheduler::Scheduler(const SchedulerConfig& config)
    : config_((config.validate(), config)),
      pool_(config.num_blocks),
      index_(config.num_blocks, config.block_size),
      policy_(make_policy(config)),
      store_(config.max_num_seqs),
      next_deadline_(kNever),
      next_lease_(kNever) {
  running_.reserve(config.max_num_seqs);
  for (int32_t slot = config.max_num_seqs - 1; slot >= 0; --slot) free_slots_.push_back(slot);
  for (int32_t i = 0; i < config.max_outstanding_plans; ++i) {
    plans_.push_back(std::make_unique<Plan>(config));
  }
  // A step brings a token for each draft, and one for each pass.
  const size_t most_tokens = static_cast<size_t>(config.max_num_batched_tokens) +
                             static_cast<size_t>(config.max_num_seqs) * config.num_scheduler_steps;
  outcome_.reserve(config.max_num_seqs, most_tokens);
}

Scheduler::~Scheduler() = default;

Refusal Scheduler::add(const Submission& submission) {
  require(submission.max_tokens >= 1, "max_tokens must be at least 1");
  require(submission.salt_from >= 0, "salt_from must not be negative");
  require(std::isfinite(submission.arrival), "arrival must be finite");
  require(!std::isnan(submission.deadline), "deadline must be a number");
  int32_t lowest = 0;
  for (const int32_t token : submission.token_ids) lowest = std::min(lowest, token);
  require(lowest >= 0, "negative token id");
  for (const int32_t token : submission.stop_token_ids) require(token >= 0, "negative stop token");

  const auto refuse = [this](Refusal reason) {
    ++counters_.requests_refused;
    return reason;
  };
  const auto prompt_len = static_cast<int64_t>(submission.token_ids.size());
  const int64_t limit = prompt_len + submission.max_tokens;
  // The last token is never computed, so its K/V needs no room.
  const int64_t cache_tokens = static_cast<int64_t>(config_.num_blocks) * config_.block_size;
  if (prompt_len == 0) return refuse(Refusal::kEmptyPrompt);
  if (limit > config_.max_model_len || limit - 1 > cache_tokens) return refuse(Refusal::kTooLong);
  if (requests_.contains(submission.id)) return refuse(Refusal::kDuplicateId);
  const Refusal full =
      submission.admitted ? Refusal::kNone : room_in_queue(prompt_len);
  if (full != Refusal::kNone) return refuse(full);

  Request& request = store_.take();
  request.id = submission.id;
  // Room for a short answer; try_start() makes it for a long one.
  const auto room = static_cast<size_t>(prompt_len + std::min(submission.max_tokens, kShort));
  request.tokens.reserve(room);
  request.tokens.assign(submission.token_ids.begin(), submission.token_ids.end());
  request.known = request.prompt_len = static_cast<int32_t>(prompt_len);
  request.last_token = request.tokens.back();
  request.limit = static_cast<int32_t>(limit);
  request.stops.assign(submission.stop_token_ids.begin(), submission.stop_token_ids.end());
  for (const int32_t token : request.stops) request.stop_mask |= uint64_t{1} << (token % 64);
  request.priority = submission.priority;
  request.salt = submission.salt;
  request.salt_from = submission.salt_from;
  request.tenant = submission.tenant;
  request.tag = submission.tag;
  request.adapter = submission.adapter;
  request.client = submission.client;
  request.arrival = submission.arrival;
  request.deadline = submission.deadline;
  request.multi_step = submission.multi_step;
  request.next_hash_at = config_.enable_prefix_caching
                             ? config_.block_size
                             : std::numeric_limits<int32_t>::max();
  if (config_.enable_prefix_caching) {
    request.hashes.reserve(blocks_for(static_cast<int32_t>(room)));
    request.extend_hashes(config_.block_size);
  }

  requests_.emplace(submission.id, &request);
  next_deadline_ = std::min(next_deadline_, request.deadline);
  policy_->enqueue(request);
  queue(request);
  ++counters_.requests_added;
  return Refusal::kNone;
}

Refusal Scheduler::room_in_queue(int64_t tokens) const {
  if (policy_->size() >= config_.max_waiting_requests) return Refusal::kQueueRequests;
  if (waiting_tokens_ + tokens > config_.max_waiting_tokens) return Refusal::kQueueTokens;
  return Refusal::kNone;
}

bool Scheduler::cancel(int64_t request_id) {
  const auto found = requests_.find(request_id);
  if (found == requests_.end() || found->second->state == RequestState::kEnded) return false;
  Request& request = *found->second;
  ++counters_.cancelled;
  pending_ended_ids_.push_back(request.id);
  pending_ended_reasons_.push_back(static_cast<int32_t>(Finish::kCancelled));
  end(request, pending_ended_slots_);
  return true;
}

void Scheduler::end(Request& request, std::vector<int32_t>& ended_slots) {
  if (request.state == RequestState::kWaiting) {
    policy_->remove(request);
    leave_queue(request);
    forget(request);
    return;
  }
  end_running(request);
  std::erase(running_, &request);
  if (request.in_flight == 0) retire(request, ended_slots);
}

bool Scheduler::propose(int64_t request_id, std::span<const int32_t> drafts) {
  for (const int32_t token : drafts) require(token >= 0, "negative token id");
  const auto found = requests_.find(request_id);
  if (found == requests_.end()) return false;
  Request& request = *found->second;
  if (request.state == RequestState::kEnded || request.in_flight > 0) return false;
  constexpr size_t most = 1024;  // far more than any drafter gets right
  request.drafts.assign(drafts.begin(), drafts.begin() + std::min(drafts.size(), most));
  request.has_drafts = !request.drafts.empty();
  return true;
}

void Scheduler::queue(Request& request) {
  request.state = RequestState::kWaiting;
  waiting_tokens_ += request.known;
}

void Scheduler::leave_queue(Request& request) { waiting_tokens_ -= request.known; }

void Scheduler::end_running(Request& request) {
  set_prefilling(request, false);
  request.state = RequestState::kEnded;
}

void Scheduler::set_prefilling(Request& request, bool prefilling) {
  num_prefilling_ += static_cast<int32_t>(prefilling) - static_cast<int32_t>(request.prefilling);
  request.prefilling = prefilling;
}

void Scheduler::retire(Request& request, std::vector<int32_t>& ended_slots) {
  register_blocks(request, nullptr);
  release_blocks(request);
  give_up_slot(request, ended_slots);
  policy_->ended(request);
  forget(request);
}

void Scheduler::forget(Request& request) {
  requests_.erase(request.id);
  store_.give_back(request);
}

std::vector<BlockId> Scheduler::blocks_of(int64_t request_id) const {
  const auto found = requests_.find(request_id);
  return found == requests_.end() ? std::vector<BlockId>{} : found->second->blocks;
}

}  // namespace pagemill
