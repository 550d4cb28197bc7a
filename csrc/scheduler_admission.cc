// Waiting requests that start: what the prefix cache spares them, and whether the rest has room.
#include "scheduler.h"

namespace pagemill {

void Scheduler::schedule_waiting(Plan& plan) {
  while (!free_slots_.empty() && budget(plan) > 0) {
    Request* const request = policy_->front();
    // The first in line is waited for: nobody overtakes a request for being smaller.
    if (request == nullptr || !try_start(plan, *request)) return;
  }
}

bool Scheduler::try_start(Plan& plan, Request& request) {
  // The prefix comes first: only what it leaves is counted.
  const int32_t num_hits = find_prefix(request);
  const int32_t cached = num_hits * config_.block_size;
  const int32_t wanted = request.known - cached;
  const int32_t tokens = chunk(wanted, budget(plan));
  if (tokens == 0) return false;
  const bool partial = tokens < wanted;
  const int32_t most_partial = config_.max_partial_prefills;
  if (partial && most_partial > 0 && num_prefilling_ >= most_partial) return false;

  // Room for all known tokens at once, so that a prompt never gives way half-way. A hit block
  // that is free stops being so: it can't be counted twice.
  const int32_t num_new = blocks_for(request.known) - num_hits;
  int32_t revived = 0;
  for (const BlockId block : hits_) revived += pool_.count(block) == 0;
  const int32_t watermark = running_.empty() ? 0 : config_.watermark_blocks;
  if (pool_.num_free() - revived - num_new < watermark) return false;

  policy_->start(request);
  leave_queue(request);
  request.state = RequestState::kRunning;
  request.slot = free_slots_.back();
  free_slots_.pop_back();
  plan.started_slots.push_back(request.slot);
  plan.started_ids.push_back(request.id);
  ++(request.was_preempted ? counters_.requests_resumed : counters_.requests_started);
  request.known_at_start = request.known;
  count_hits(request, cached);

  request.tokens.reserve(request.limit);
  request.hashes.reserve(blocks_for(request.limit));
  request.blocks.reserve(blocks_for(request.limit));
  for (const BlockId block : hits_) pool_.acquire(block);
  take_blocks(num_new, hits_);
  append_blocks(plan, request, hits_);
  request.registered = num_hits;
  request.computed = cached;
  set_prefilling(request, true);
  // The first of what register_blocks() is about to touch.
  const int32_t full = std::min(cached + tokens, request.known) / config_.block_size;
  for (int32_t i = num_hits; i < std::min(full, num_hits + 32); ++i) {
    if (config_.enable_prefix_caching) index_.prefetch_insert(request.blocks[i], request.hashes[i]);
  }

  join_running(request);
  plan.rows[plan.num_rows] = {&request, num_hits, request.epoch, 0, false, false, false, true};
  // Drafts take what the last block has left: nobody waits longer for a guess.
  int32_t drafts = 0;
  if (!partial) {
    const int32_t spare = request.capacity - request.known;
    drafts = std::min(most_drafts(request, budget(plan) - tokens), spare);
  }
  emit(plan, request, tokens, drafts, 1);
  // At once: the next to start may share what this one computes.
  register_blocks(request, &plan.registered);
  return true;
}

void Scheduler::join_running(Request& request) {
  auto at = running_.end();
  while (at != running_.begin() && request.rank < (*(at - 1))->rank) --at;
  running_.insert(at, &request);
}

void Scheduler::count_hits(const Request& request, int32_t cached) {
  counters_.prompt_tokens += request.known;
  if (!config_.enable_prefix_caching) return;
  counters_.prefix_queries += request.known;
  counters_.prefix_hits += cached;
  auto at = tag_hits_.find(request.tag);
  if (at == tag_hits_.end()) {
    at = tag_hits_.try_emplace(tag_hits_.size() < kMaxTags ? request.tag : -1).first;
  }
  at->second.queries += request.known;
  at->second.hits += cached;
}

}  // namespace pagemill
