// A map from 64-bit keys to numbers, by open addressing: what automata number their states with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace pagemill {

class NumberMap {
 public:
  // The number of a key and whether it was added just now, with `number`, which is not negative.
  std::pair<int32_t, bool> emplace(uint64_t key, int32_t number) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    Slot& slot = place(key);
    if (slot.number >= 0) return {slot.number, false};
    slot = {key, number};
    ++size_;
    return {number, true};
  }

  // -1 for a key that is not there.
  int32_t find(uint64_t key) const {
    return slots_.empty() ? -1 : const_cast<NumberMap*>(this)->place(key).number;
  }

 private:
  struct Slot {
    uint64_t key = 0;
    int32_t number = -1;
  };

  Slot& place(uint64_t key) {
    const size_t mask = slots_.size() - 1;
    uint64_t hash = (key ^ key >> 29) * 0x9E3779B97F4A7C15ull;
    for (size_t at = (hash ^ hash >> 32) & mask;; at = (at + 1) & mask) {
      if (slots_[at].number < 0 || slots_[at].key == key) return slots_[at];
    }
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 64 : 2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.number >= 0) place(slot.key) = slot;
    }
  }

  std::vector<Slot> slots_;  // a power of two of them, at most half full
  size_t size_ = 0;
};

}  // namespace pagemill
