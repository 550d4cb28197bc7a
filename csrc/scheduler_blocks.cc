// Blocks of a request, and which of them the prefix index may show to others.
#include <algorithm>
#include <numeric>

#include "scheduler.h"

namespace pagemill {

int32_t Scheduler::find_prefix(const Request& request) {
  hits_.clear();
  if (!config_.enable_prefix_caching) return 0;
  // At least one token is left to compute: its logits are what the caller waits for.
  const int32_t most = (request.known - 1) / config_.block_size;
  const int32_t* tokens = request.tokens.data();
  constexpr int32_t kAhead = 4;
  for (int32_t i = 0; i < most; ++i, tokens += config_.block_size) {
    if (i + kAhead < most) index_.prefetch_find(request.hashes[i + kAhead]);
    const BlockId block = index_.find(request.hashes[i], tokens);
    if (block == kNoBlock) break;
    hits_.push_back(block);
  }
  return static_cast<int32_t>(hits_.size());
}

BlockId Scheduler::take_block() {
  const BlockId block = pool_.allocate();
  ++counters_.blocks_allocated;
  if (index_.contains(block)) {
    ++counters_.blocks_evicted;
    index_.erase(block);
  }
  // The next call needs what the index holds of the next block, the one after it where that is.
  const BlockId next = pool_.peek();
  if (next == kNoBlock) return block;
  index_.prefetch_erase(next);
  const BlockId second = pool_.peek_second();
  if (second != kNoBlock) {
    index_.prefetch(second);
    pool_.prefetch(second);
  }
  return block;
}

void Scheduler::take_blocks(int32_t count, std::vector<BlockId>& blocks) {
  // Each block goes through three stages, some blocks apart: what a stage touches is on its way to
  // the cache while others are at work, above all while the free list is followed.
  constexpr int32_t kApart = 6;
  const size_t first = blocks.size();
  blocks.resize(first + count);
  BlockId* const out = blocks.data() + first;
  for (int32_t i = 0; i < count + 2 * kApart; ++i) {
    if (i < count) {
      out[i] = pool_.allocate();
      index_.prefetch(out[i]);
    }
    if (const int32_t next = i - kApart; next >= 0 && next < count) {
      index_.prefetch_erase(out[next]);
    }
    if (const int32_t last = i - 2 * kApart; last >= 0 && index_.contains(out[last])) {
      ++counters_.blocks_evicted;
      index_.erase(out[last]);
    }
  }
  counters_.blocks_allocated += count;
}

void Scheduler::append_block(Plan& plan, Request& request, BlockId block) {
  plan.table_slots.push_back(request.slot);
  plan.table_indices.push_back(static_cast<int32_t>(request.blocks.size()));
  plan.table_blocks.push_back(block);
  request.blocks.push_back(block);
  request.capacity += config_.block_size;
  request.tail_base = block * config_.block_size;
}

void Scheduler::append_blocks(Plan& plan, Request& request, std::span<const BlockId> blocks) {
  if (blocks.empty()) return;
  const auto index = static_cast<int32_t>(request.blocks.size());
  plan.table_slots.insert(plan.table_slots.end(), blocks.size(), request.slot);
  plan.table_indices.resize(plan.table_indices.size() + blocks.size());
  std::iota(plan.table_indices.end() - static_cast<std::ptrdiff_t>(blocks.size()),
            plan.table_indices.end(), index);
  plan.table_blocks.insert(plan.table_blocks.end(), blocks.begin(), blocks.end());
  request.blocks.insert(request.blocks.end(), blocks.begin(), blocks.end());
  request.capacity += static_cast<int32_t>(blocks.size()) * config_.block_size;
  request.tail_base = blocks.back() * config_.block_size;
}

void Scheduler::pop_block(Request& request) {
  const BlockId block = request.blocks.back();
  request.blocks.pop_back();
  request.capacity -= config_.block_size;
  request.tail_base = request.blocks.empty() ? 0 : request.blocks.back() * config_.block_size;
  drop_block(block);
}

void Scheduler::drop_block(BlockId block) {
  if (index_.contains(block)) {
    pool_.release(block);
  } else {
    pool_.discard(block);
  }
}

void Scheduler::register_full_blocks(Request& request, std::vector<BlockId>* log) {
  const int32_t verified = std::min(request.computed, request.known);
  const int32_t end = verified / config_.block_size;
  constexpr int32_t kAhead = 12;
  const auto prefetch = [&](int32_t i) {
    if (i < end) index_.prefetch_insert(request.blocks[i], request.hashes[i]);
  };
  for (int32_t i = 1; i < kAhead; ++i) prefetch(request.registered + i);
  while (request.registered < end) {
    const int32_t i = request.registered++;
    prefetch(i + kAhead);
    const BlockId block = request.blocks[i];
    if (index_.contains(block)) continue;
    const int32_t* tokens = request.tokens.data() + static_cast<size_t>(i) * config_.block_size;
    if (index_.insert(block, request.hashes[i], tokens) && log != nullptr) log->push_back(block);
  }
}

void Scheduler::register_rows(Plan& plan) {
  // A decoding row brings one block: what registering touches is fetched while others are at work.
  constexpr size_t kAhead = 4;
  const size_t count = full_.size();
  for (size_t i = 0; i < count; ++i) {
    if (i + 3 * kAhead < count) {
      __builtin_prefetch(&full_[i + 3 * kAhead]->blocks);
      __builtin_prefetch(&full_[i + 3 * kAhead]->tokens);
    }
    if (i + 2 * kAhead < count) {
      const Request& soon = *full_[i + 2 * kAhead];
      __builtin_prefetch(&soon.blocks[soon.registered]);
      __builtin_prefetch(&soon.hashes[soon.registered]);
      const size_t tokens = static_cast<size_t>(soon.registered) * config_.block_size;
      __builtin_prefetch(soon.tokens.data() + tokens);
    }
    if (i + kAhead < count) {
      const Request& next = *full_[i + kAhead];
      index_.prefetch_insert(next.blocks[next.registered], next.hashes[next.registered]);
    }
    register_full_blocks(*full_[i], &plan.registered);
  }
  full_.clear();
}

void Scheduler::release_blocks(Request& request) {
  // From the tail, so that the leaves of the prefix tree are recycled before its roots.
  constexpr size_t kAhead = 4;
  while (!request.blocks.empty()) {
    if (request.blocks.size() > kAhead) {
      const BlockId soon = *(request.blocks.end() - 1 - kAhead);
      index_.prefetch(soon);
      pool_.prefetch(soon);
    }
    pop_block(request);
  }
  request.registered = 0;
}

void Scheduler::give_up_slot(Request& request, std::vector<int32_t>& ended_slots) {
  ended_slots.push_back(request.slot);
  free_slots_.push_back(request.slot);
  request.slot = -1;
}

}  // namespace pagemill
