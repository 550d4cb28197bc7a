// Deterministic byte automata as the schema compiler builds and combines them.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "byte_dfa.h"

namespace pagemill {

// One byte would both count and not count, or count for two bounds.
struct Ambiguous : std::runtime_error {
  Ambiguous() : std::runtime_error("one byte stands for two counter operations") {}
};

// More states than the builder was given.
struct TooManyStates : std::runtime_error {
  TooManyStates() : std::runtime_error("the automaton has too many states") {}
};

// A partial automaton; edges of a state are disjoint ranges in ascending order. An operation is
// part of an edge's letter: 0 for none, else 1 + its index among those of the builder.
struct Automaton {
  struct Edge {
    uint8_t low, high;
    uint16_t op;
    int32_t to;
    friend bool operator==(const Edge&, const Edge&) = default;
  };

  int32_t start = 0;
  std::vector<std::vector<Edge>> edges;  // by state; no states: nothing is accepted
  std::vector<uint8_t> final;

  size_t size() const { return edges.size(); }
  bool empty() const { return edges.empty(); }
  int32_t add(bool is_final);

  // Appends an edge behind the last of a state, joined with it where that is the same.
  void append(int32_t from, const Edge& edge);
};

// Without states that the start doesn't reach or that reach no end, in order of first visit
// (breadth first by bytes), so that equal minimal automata are equal structs.
Automaton trim(const Automaton& automaton);

// The smallest automaton of the same language over letters (byte, operation), trimmed.
Automaton minimise(const Automaton& automaton);

// Words of both, of one but not the other. Letters must agree: Ambiguous where a byte carries
// different operations. TooManyStates above `max_states`.
Automaton intersect(const Automaton& a, const Automaton& b, size_t max_states);
Automaton subtract(const Automaton& a, const Automaton& b, size_t max_states);

// The table of pagemill.schemas (schemas/table.py); operations that no edge carries are left out.
// The automaton is trimmed and has at most ByteDfa::kMaxStates states.
std::string write_table(const Automaton& automaton, std::span<const CounterOp> ops);

}  // namespace pagemill
