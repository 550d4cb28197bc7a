// Lengths of the words of an automaton, whose characters begin with a byte under one operation.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "automaton.h"

namespace pagemill {

// `least` to `most` (-1: any number of) characters. A tick is the operation of a character's
// first byte; the automata that come out have counters, or counts in their states, instead.
struct Bounds {
  uint16_t tick;
  int32_t least;
  int32_t most;

  using Op = std::function<uint16_t(CounterOp::Kind, int32_t limit)>;

  // Whether a counter can hold the bounds: from each state, within them, an end stays in reach.
  bool can_count(const Automaton& body) const;

  // An edge's limit leaves room for the characters that are missing behind it to a final state.
  Automaton count(const Automaton& body, const Automaton& end, const Op& op) const;
  Automaton unroll(const Automaton& body, const Automaton& end, size_t max_states) const;

 private:
  bool has_loop(const Automaton& body, int32_t state) const;
  // By state: the fewest characters to a final state that `counts` says yes to; kNever for none.
  std::vector<int32_t> fewest(const Automaton& body, const std::vector<uint8_t>& counts) const;
};

}  // namespace pagemill
