// The distinct masks of a grammar, each stored once and named by a small id.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace pagemill {

// Many states share a mask, so states keep an id and the pool keeps the rows. A sparse mask also
// holds its ids, so that a search over it touches only those. Rows never move or change once
// added. One thread at a time.
class MaskPool {
 public:
  static constexpr int32_t kSparseLimit = 256;

  explicit MaskPool(int32_t num_words);

  // The id of a row of num_words words, added when no equal one is there.
  int32_t intern(std::span<const int32_t> row);

  int32_t size() const { return static_cast<int32_t>(masks_.size()); }
  int32_t num_words() const { return num_words_; }
  std::span<const int32_t> row(int32_t mask) const { return masks_[mask].row; }
  int32_t popcount(int32_t mask) const { return masks_[mask].popcount; }

  // The set bits in ascending order when there are at most kSparseLimit, else empty.
  std::span<const int32_t> sparse_ids(int32_t mask) const { return masks_[mask].ids; }

 private:
  struct Mask {
    std::vector<int32_t> row;
    std::vector<int32_t> ids;
    int32_t popcount;
  };

  int32_t num_words_;
  std::vector<Mask> masks_;
  std::unordered_multimap<uint64_t, int32_t> by_hash_;
};

}  // namespace pagemill
