// Repetition inside a string or a number: what a small model falls into and never leaves.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "byte_dfa.h"

namespace pagemill {

// Where a row stands in the text: inside a string, or elsewhere, where a number may be open.
enum class Region : uint8_t { kNone, kString, kNumber };

inline bool is_number_byte(uint8_t byte) {
  return (byte >= '0' && byte <= '9') || byte == '-' || byte == '+' || byte == '.' ||
         byte == 'e' || byte == 'E';
}

// Which states of an automaton lie inside a string. Two states that differ in this accept
// different texts, so in an automaton over JSON a state says it; in one over other texts where it
// doesn't, no state counts as inside a string.
class Regions {
 public:
  explicit Regions(const ByteDfa& dfa);

  bool in_string(int32_t state) const { return in_string_[state] != 0; }

 private:
  std::vector<uint8_t> in_string_;
};

// Watches one row's own tokens, so what it says depends on nothing else. A loop is a run of
// equal groups of 1 to kMaxPeriod tokens within one string: at least kMinRepeats groups and
// kMinTokens tokens; or a number of more than kMaxNumberBytes bytes. A value, copied to roll back.
class LoopWatch {
 public:
  static constexpr int32_t kMaxPeriod = 16;
  static constexpr int32_t kMinRepeats = 4;
  static constexpr int32_t kMinTokens = 24;
  static constexpr int32_t kMaxNumberBytes = 24;

  // What has to be left because it loops.
  Region looping() const { return looping_; }

  // Takes a legal token whose bytes are walked from `state`; true when it completes a loop.
  bool push(const ByteDfa& dfa, const Regions& regions, int32_t state, int32_t token,
            std::string_view bytes);

 private:
  bool repeats(int32_t token);
  void forget();

  std::array<int32_t, kMaxPeriod> recent_{};      // tokens of the open string, a ring
  std::array<uint16_t, kMaxPeriod + 1> equal_{};  // by period: tokens equal to the one before
  int32_t size_ = 0;
  int32_t number_bytes_ = 0;
  Region looping_ = Region::kNone;
};

}  // namespace pagemill
