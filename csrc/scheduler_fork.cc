// Requests that go on from where another stands, sharing its blocks.
#include <algorithm>
#include <set>
#include <stdexcept>

#include "scheduler.h"

namespace pagemill {

Refusal Scheduler::fork(int64_t parent_id, int64_t child_id, int32_t keep, int32_t last_token) {
  const auto found = requests_.find(parent_id);
  Refusal refusal = Refusal::kNone;
  if (found == requests_.end() || found->second->state == RequestState::kEnded) {
    refusal = Refusal::kUnknownParent;
  } else if (requests_.contains(child_id)) {
    refusal = Refusal::kDuplicateId;
  }
  if (refusal != Refusal::kNone) {
    ++counters_.requests_refused;
    return refusal;
  }
  Request& parent = *found->second;
  if (keep < 0) keep = parent.known;
  if (keep < 1 || keep > parent.known) {
    throw std::invalid_argument("keep must be at least 1, and no more than the parent's tokens");
  }
  const bool shares = parent.state == RequestState::kRunning && !parent.prefilling &&
                      parent.in_flight == 0 && !free_slots_.empty();

  parent.settle();
  Request& child = store_.take();
  child = parent;
  child.id = child_id;
  child.slot = -1;
  child.blocks.clear();
  child.drafts.clear();
  child.has_drafts = false;
  child.computed = child.registered = child.pending = child.in_flight = 0;
  child.capacity = child.tail_base = 0;
  child.epoch = 0;
  child.state = RequestState::kWaiting;
  child.prefilling = child.shared_tail = child.uncertain = child.was_preempted = false;
  child.untold = child.stale_table = false;
  child.known = keep;
  child.tokens.resize(keep);
  if (last_token >= 0) child.tokens.back() = last_token;
  child.last_token = child.tokens.back();
  if (config_.enable_prefix_caching) {
    const int32_t hashed = (last_token >= 0 ? keep - 1 : keep) / config_.block_size;
    child.hashes.resize(hashed);
    child.next_hash_at = (hashed + 1) * config_.block_size;
    child.extend_hashes(config_.block_size);
  }
  requests_.emplace(child_id, &child);
  next_deadline_ = std::min(next_deadline_, child.deadline);
  policy_->enqueue(child);
  ++counters_.forks;
  if (shares) {
    policy_->start(child);
    share_blocks(parent, child);
  } else {
    queue(child);
  }
  return Refusal::kNone;
}

void Scheduler::share_blocks(Request& parent, Request& child) {
  ++counters_.forks_shared;
  child.state = RequestState::kRunning;
  child.slot = free_slots_.back();
  free_slots_.pop_back();
  child.untold = true;
  child.computed = std::min(parent.computed, child.known - 1);
  child.known_at_start = std::min(parent.known_at_start, child.computed);
  child.tokens.reserve(child.limit);
  child.hashes.reserve(blocks_for(child.limit));
  child.blocks.reserve(blocks_for(child.limit));
  const int32_t shared = blocks_for(child.computed);
  for (int32_t i = 0; i < shared; ++i) {
    pool_.acquire(parent.blocks[i]);
    child.blocks.push_back(parent.blocks[i]);
  }
  child.capacity = shared * config_.block_size;
  child.tail_base = shared == 0 ? 0 : child.blocks.back() * config_.block_size;
  child.registered = std::min(parent.registered, child.computed / config_.block_size);
  child.shared_tail = child.computed % config_.block_size != 0;
  if (parent.computed / config_.block_size < shared) parent.shared_tail = true;
  join_running(child);
}

bool Scheduler::must_copy(const Plan& plan, const Request& request) const {
  const BlockId block = request.blocks[request.computed / config_.block_size];
  if (index_.contains(block)) return true;
  int32_t owners = pool_.count(block);
  // A copy made by a step that isn't over holds the block only to undo itself.
  const auto discount = [&](const Plan& p) {
    owners -= static_cast<int32_t>(std::count(p.copied.begin(), p.copied.end(), block));
  };
  for (size_t i = 0; i < num_outstanding_; ++i) {
    discount(*plans_[(first_plan_ + i) % plans_.size()]);
  }
  discount(plan);
  return owners > 1;
}

BlockId Scheduler::copy_tail(Plan& plan, Request& request) {
  const int32_t index = request.computed / config_.block_size;
  const BlockId shared = request.blocks[index];
  const BlockId copy = take_block();
  ++counters_.blocks_copied;
  plan.copy_src.push_back(shared);
  plan.copy_dst.push_back(copy);
  plan.table_slots.push_back(request.slot);
  plan.table_indices.push_back(index);
  plan.table_blocks.push_back(copy);
  request.blocks[index] = copy;
  request.tail_base = request.blocks.back() * config_.block_size;
  return shared;
}

void Scheduler::retell(Plan& plan, Request& request) {
  if (request.untold) {
    plan.started_slots.push_back(request.slot);
    plan.started_ids.push_back(request.id);
  }
  for (size_t i = 0; i < request.blocks.size(); ++i) {
    plan.table_slots.push_back(request.slot);
    plan.table_indices.push_back(static_cast<int32_t>(i));
    plan.table_blocks.push_back(request.blocks[i]);
  }
  request.untold = request.stale_table = false;
}

void Scheduler::renew(int64_t client, double until) {
  if (!(until == until)) throw std::invalid_argument("until must be a number");
  leases_[client] = until;
  next_lease_ = std::min(next_lease_, until);
}

void Scheduler::expire_leases(Plan& plan, double now) {
  std::vector<Request*> left;
  for (const auto& [id, request] : requests_) {
    if (request->state == RequestState::kEnded) continue;
    const auto lease = leases_.find(request->client);
    if (lease != leases_.end() && now >= lease->second) left.push_back(request);
  }
  std::set<int64_t> clients;
  for (const Request* request : left) clients.insert(request->client);
  counters_.leases_expired += static_cast<int64_t>(clients.size());
  end_all(plan, left, Finish::kLease);
  std::erase_if(leases_, [now](const auto& lease) { return now >= lease.second; });
  next_lease_ = std::numeric_limits<double>::infinity();
  for (const auto& [client, until] : leases_) next_lease_ = std::min(next_lease_, until);
}

}  // namespace pagemill
