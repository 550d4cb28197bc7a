// Finds the KV blocks of a token prefix that has been computed before.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "block_pool.h"
#include "huge_pages.h"

namespace pagemill {

// The identity of a full block: its tokens and everything before them that shapes its K/V.
// `key` places it in the table. `check` is a second chain, mixed independently, so that a false
// hit needs both to collide and the block's own tokens to agree.
struct BlockHash {
  uint64_t key = 0;
  uint64_t check = 0;
  bool operator==(const BlockHash&) const = default;
};

// The parent of a sequence's first block; `adapter` keeps the K/V of adapters apart.
BlockHash root_hash(uint64_t adapter);
// The parent of the first block that belongs to one tenant alone.
BlockHash salted(const BlockHash& parent, uint64_t salt);
BlockHash chained(const BlockHash& parent, const int32_t* tokens, int32_t num_tokens);

// Block contents by chained hash: an open-addressing table over the blocks of one pool. It owns
// no block: the holder must erase() a block before its contents change. One thread at a time.
class PrefixIndex {
 public:
  PrefixIndex(int32_t num_blocks, int32_t block_size);

  // The block that holds `tokens` after the prefix of `hash`, or kNoBlock.
  BlockId find(const BlockHash& hash, const int32_t* tokens) const;

  // Registers a block's contents. False, and nothing changes, when the key is taken: the first
  // block wins, and a second copy of the same contents stays private to its owner.
  bool insert(BlockId block, const BlockHash& hash, const int32_t* tokens);

  bool contains(BlockId block) const { return held_[block].registered; }

  // Forgets a block; nothing happens when it isn't registered.
  void erase(BlockId block);

  // Bring into the cache what a later call is about to touch. Tables of many blocks don't fit it,
  // so a caller who knows its next blocks looks ahead.
  void prefetch_find(const BlockHash& hash) const { __builtin_prefetch(&entries_[home(hash.key)]); }
  void prefetch_insert(BlockId block, const BlockHash& hash) const {
    __builtin_prefetch(&entries_[home(hash.key)], 1);
    prefetch(block);
    __builtin_prefetch(&tokens_[static_cast<size_t>(block) * block_size_], 1);
  }
  void prefetch(BlockId block) const { __builtin_prefetch(&held_[block], 1); }  // for contains()
  void prefetch_erase(BlockId block) const {
    if (contains(block)) __builtin_prefetch(&entries_[home(held_[block].hash.key)], 1);
  }

  int32_t size() const { return size_; }
  std::string check_integrity() const;

 private:
  // Eight to a cache line. The whole key stands with the block, where a hit looks anyway.
  struct Entry {
    uint32_t key_bits;  // the low ones: they hold home(key)
    BlockId block;      // kNoBlock: empty
  };
  struct alignas(32) Held {
    BlockHash hash;
    bool registered = false;
  };

  size_t home(uint64_t key) const { return key & mask_; }
  size_t probe(uint64_t key) const;  // the entry with this key, or the empty one after it

  int32_t block_size_;
  std::vector<Entry, HugePages<Entry>> entries_;  // power of two, at most half full
  size_t mask_;
  std::vector<Held, HugePages<Held>> held_;           // per block
  std::vector<int32_t, HugePages<int32_t>> tokens_;  // [block, block_size]
  int32_t size_ = 0;
};

}  // namespace pagemill
