#include "block_pool.h"

#include <stdexcept>

namespace pagemill {

BlockPool::BlockPool(int32_t num_blocks) {
  if (num_blocks < 1) throw std::invalid_argument("num_blocks must be at least 1");
  nodes_.resize(static_cast<size_t>(num_blocks) + 1);
  nodes_[num_blocks] = {num_blocks, num_blocks, 0};
  for (BlockId block = 0; block < num_blocks; ++block) {
    nodes_[block].count = 0;
    link(block, nodes_[num_blocks].prev);
  }
}

const BlockPool::Node& BlockPool::node(BlockId block) const {
  if (block < 0 || block >= num_blocks()) throw std::logic_error("no such block");
  return nodes_[block];
}

void BlockPool::link(BlockId block, BlockId after) {
  const BlockId before = nodes_[after].next;
  nodes_[block].prev = after;
  nodes_[block].next = before;
  nodes_[after].next = block;
  nodes_[before].prev = block;
  ++num_free_;
}

void BlockPool::unlink(BlockId block) {
  const Node& node = nodes_[block];
  nodes_[node.prev].next = node.next;
  nodes_[node.next].prev = node.prev;
  --num_free_;
}

BlockId BlockPool::allocate() {
  const BlockId block = nodes_[num_blocks()].next;
  if (block == num_blocks()) throw std::logic_error("allocate() on an exhausted block pool");
  unlink(block);
  nodes_[block].count = 1;
  return block;
}

void BlockPool::acquire(BlockId block) {
  if (node(block).count == 0) unlink(block);
  ++nodes_[block].count;
}

bool BlockPool::drop(BlockId block) {
  if (node(block).count == 0) throw std::logic_error("release of a free block");
  return --nodes_[block].count == 0;
}

void BlockPool::release(BlockId block) {
  if (drop(block)) link(block, nodes_[num_blocks()].prev);
}

void BlockPool::discard(BlockId block) {
  if (drop(block)) link(block, num_blocks());
}

std::vector<BlockId> BlockPool::free_list() const {
  std::vector<BlockId> blocks;
  blocks.reserve(num_free_);
  for (BlockId b = nodes_[num_blocks()].next; b != num_blocks(); b = nodes_[b].next) {
    blocks.push_back(b);
    if (blocks.size() > nodes_.size()) break;  // a loop: check_integrity() reports it
  }
  return blocks;
}

std::string BlockPool::check_integrity() const {
  const std::vector<BlockId> listed = free_list();
  if (static_cast<int32_t>(listed.size()) != num_free_) return "num_free is wrong";
  std::vector<bool> seen(nodes_.size(), false);
  for (const BlockId block : listed) {
    if (seen[block]) return "block " + std::to_string(block) + " is twice in the free list";
    seen[block] = true;
    if (nodes_[nodes_[block].next].prev != block) {
      return "free list links disagree at block " + std::to_string(block);
    }
  }
  for (BlockId block = 0; block < num_blocks(); ++block) {
    if (nodes_[block].count < 0) return "negative count of block " + std::to_string(block);
    if (seen[block] != (nodes_[block].count == 0)) {
      return "block " + std::to_string(block) + " is neither free nor owned, or both";
    }
  }
  return "";
}

}  // namespace pagemill
