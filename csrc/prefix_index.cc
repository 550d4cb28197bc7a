#include "prefix_index.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

namespace pagemill {
namespace {

// Odd constants with well-spread bits: the fractions of the golden ratio, sqrt(2), sqrt(3), pi.
constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
constexpr uint64_t kRoot2 = 0x6a09e667f3bcc909;
constexpr uint64_t kRoot3 = 0xbb67ae8584caa73b;
constexpr uint64_t kPi = 0x243f6a8885a308d3;

// The first outputs of SplitMix64 from state 0.
constexpr std::array<uint64_t, 8> kNhKey = [] {
  std::array<uint64_t, 8> keys{};
  uint64_t state = 0;
  for (uint64_t& key : keys) {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    key = z ^ (z >> 31);
  }
  return keys;
}();

// The two halves of the 128-bit product, folded: every input bit reaches every output bit.
inline uint64_t fold(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline BlockHash mixed(const BlockHash& state, uint64_t word) {
  return {fold(state.key ^ word ^ kGolden, kRoot2), fold(state.check + word + kRoot3, kPi ^ word)};
}

}  // namespace

BlockHash root_hash(uint64_t adapter) { return mixed({kPi, kGolden}, adapter); }

BlockHash salted(const BlockHash& parent, uint64_t salt) { return mixed(parent, salt); }

BlockHash chained(const BlockHash& parent, const int32_t* tokens, int32_t num_tokens) {
  // Sixteen tokens at a time: their sums of products don't wait for each other, nor for the parent.
  // Source: the hash NH of J. Black et al., "UMAC: fast and secure message authentication", 1999.
  constexpr int32_t kRound = 16;
  BlockHash state = parent;
  for (int32_t first = 0; first < num_tokens; first += kRound) {
    uint64_t words[kRound / 2] = {};
    std::memcpy(words, tokens + first, sizeof(int32_t) * std::min(kRound, num_tokens - first));
    unsigned __int128 sum = 0;
    for (int32_t i = 0; i < kRound / 2; i += 2) {
      const uint64_t left = words[i] + kNhKey[i], right = words[i + 1] + kNhKey[i + 1];
      sum += static_cast<unsigned __int128>(left) * right;
    }
    state = mixed(mixed(state, static_cast<uint64_t>(sum)), static_cast<uint64_t>(sum >> 64));
  }
  return mixed(state, static_cast<uint64_t>(num_tokens));
}

PrefixIndex::PrefixIndex(int32_t num_blocks, int32_t block_size)
    : block_size_(block_size),
      held_(num_blocks),
      tokens_(static_cast<size_t>(num_blocks) * block_size) {
  size_t capacity = 16;
  while (capacity < static_cast<size_t>(num_blocks) * 2) capacity *= 2;
  entries_.assign(capacity, {0, kNoBlock});
  mask_ = capacity - 1;
}

size_t PrefixIndex::probe(uint64_t key) const {
  size_t at = home(key);
  for (; entries_[at].block != kNoBlock; at = (at + 1) & mask_) {
    const Entry& entry = entries_[at];
    if (entry.key_bits == static_cast<uint32_t>(key) && held_[entry.block].hash.key == key) break;
  }
  return at;
}

BlockId PrefixIndex::find(const BlockHash& hash, const int32_t* tokens) const {
  const BlockId block = entries_[probe(hash.key)].block;
  if (block == kNoBlock || held_[block].hash.check != hash.check) return kNoBlock;
  const int32_t* held = tokens_.data() + static_cast<size_t>(block) * block_size_;
  return std::memcmp(held, tokens, sizeof(int32_t) * block_size_) == 0 ? block : kNoBlock;
}

bool PrefixIndex::insert(BlockId block, const BlockHash& hash, const int32_t* tokens) {
  if (contains(block)) throw std::logic_error("block is registered already");
  const size_t at = probe(hash.key);
  if (entries_[at].block != kNoBlock) return false;
  entries_[at] = {static_cast<uint32_t>(hash.key), block};
  held_[block] = {hash, true};
  std::memcpy(tokens_.data() + static_cast<size_t>(block) * block_size_, tokens,
              sizeof(int32_t) * block_size_);
  ++size_;
  return true;
}

void PrefixIndex::erase(BlockId block) {
  if (!contains(block)) return;
  size_t hole = probe(held_[block].hash.key);
  // Close the gap: pull back every later entry of the cluster whose home lies at or before it.
  for (size_t at = (hole + 1) & mask_; entries_[at].block != kNoBlock; at = (at + 1) & mask_) {
    const size_t distance = (at - home(entries_[at].key_bits)) & mask_;
    if (distance >= ((at - hole) & mask_)) {
      entries_[hole] = entries_[at];
      hole = at;
    }
  }
  entries_[hole].block = kNoBlock;
  held_[block].registered = false;
  --size_;
}

std::string PrefixIndex::check_integrity() const {
  int32_t found = 0;
  for (size_t at = 0; at < entries_.size(); ++at) {
    const Entry& entry = entries_[at];
    if (entry.block == kNoBlock) continue;
    ++found;
    const std::string name = std::to_string(entry.block);
    if (!contains(entry.block)) return "index entry points to unregistered block " + name;
    const uint64_t key = held_[entry.block].hash.key;
    if (static_cast<uint32_t>(key) != entry.key_bits) {
      return "index entry disagrees with block " + name;
    }
    if (probe(key) != at) return "index entry of block " + name + " can't be reached";
  }
  int32_t marked = 0;
  for (const Held& held : held_) marked += held.registered;
  if (found != size_ || marked != size_) return "prefix index size is wrong";
  return "";
}

}  // namespace pagemill
