// Fixed-size KV blocks, counted by owner and recycled least-recently-used first.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "huge_pages.h"

namespace pagemill {

using BlockId = int32_t;
inline constexpr BlockId kNoBlock = -1;

// A block is free (count 0) or owned (count > 0). A free block keeps its contents until it is
// handed out again, so that the prefix index can revive it with acquire(). The free list is
// threaded through the blocks themselves: every operation is O(1) and allocates nothing.
// One thread at a time. Misuse throws std::logic_error.
class BlockPool {
 public:
  explicit BlockPool(int32_t num_blocks);

  int32_t num_blocks() const { return static_cast<int32_t>(nodes_.size()) - 1; }
  int32_t num_free() const { return num_free_; }
  int32_t count(BlockId block) const { return node(block).count; }

  // Hands out the block at the old end of the free list, with count 1. Whoever indexes block
  // contents must forget this block's. Requires num_free() > 0.
  BlockId allocate();

  // The block that allocate() would hand out, or kNoBlock.
  BlockId peek() const {
    const BlockId block = nodes_.back().next;
    return block == num_blocks() ? kNoBlock : block;
  }

  // The block after it: what allocate() hands out second.
  BlockId peek_second() const {
    const BlockId block = nodes_[nodes_.back().next].next;
    return block == num_blocks() ? kNoBlock : block;
  }

  void prefetch(BlockId block) const { __builtin_prefetch(&nodes_[block], 1); }

  // Adds an owner. A free block leaves the free list: its contents are wanted again.
  void acquire(BlockId block);

  // Drops an owner. At count 0 the block joins the young end of the free list; callers release
  // a sequence from its tail, so that leaves of the prefix tree are recycled before roots.
  void release(BlockId block);

  // Drops an owner of contents that nobody can look up: at count 0 the block joins the old end
  // and is handed out before any block worth keeping.
  void discard(BlockId block);

  // The free blocks, oldest first.
  std::vector<BlockId> free_list() const;

  // Empty if every block is free xor owned and the list is sound; else what is wrong.
  std::string check_integrity() const;

 private:
  struct Node {
    BlockId prev;
    BlockId next;
    int32_t count;
  };

  const Node& node(BlockId block) const;
  bool drop(BlockId block);  // true when the last owner left
  void link(BlockId block, BlockId after);
  void unlink(BlockId block);

  std::vector<Node, HugePages<Node>> nodes_;  // nodes_[num_blocks()] is the head of the circular free list
  int32_t num_free_ = 0;
};

}  // namespace pagemill
