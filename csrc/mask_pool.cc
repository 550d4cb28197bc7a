#include "mask_pool.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace pagemill {
namespace {

uint64_t hash_of(std::span<const int32_t> row) {
  uint64_t hash = 0x9E3779B97F4A7C15ull;
  for (const int32_t word : row) {
    hash = (hash ^ static_cast<uint32_t>(word)) * 0xFF51AFD7ED558CCDull;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

MaskPool::MaskPool(int32_t num_words) : num_words_(num_words) {
  if (num_words <= 0) throw std::invalid_argument("a mask needs at least one word");
}

int32_t MaskPool::intern(std::span<const int32_t> row) {
  if (row.size() != static_cast<size_t>(num_words_)) {
    throw std::invalid_argument("a mask row of the wrong width");
  }
  const uint64_t hash = hash_of(row);
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (std::ranges::equal(masks_[it->second].row, row)) return it->second;
  }
  Mask mask{{row.begin(), row.end()}, {}, 0};
  for (const int32_t word : row) mask.popcount += std::popcount(static_cast<uint32_t>(word));
  if (mask.popcount <= kSparseLimit) {
    mask.ids.reserve(mask.popcount);
    for (size_t i = 0; i < row.size(); ++i) {
      for (uint32_t word = static_cast<uint32_t>(row[i]); word != 0; word &= word - 1) {
        mask.ids.push_back(static_cast<int32_t>(i * 32) + std::countr_zero(word));
      }
    }
  }
  masks_.push_back(std::move(mask));
  by_hash_.emplace(hash, size() - 1);
  return size() - 1;
}

}  // namespace pagemill
