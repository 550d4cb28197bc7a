// From an expression to a deterministic automaton: Thompson's construction and subsets.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "automaton.h"
#include "expression.h"

namespace pagemill {

// The automaton of one expression. Its jumps take no byte; a jump with an operation gives it to
// the byte that follows.
class Nondeterministic {
 public:
  Nondeterministic(const Expressions& expressions, size_t max_states)
      : expressions_(expressions), max_states_(max_states) {}

  // Ambiguous, TooManyStates.
  Automaton determinise(Expressions::Id node);

 private:
  using Edge = Automaton::Edge;
  struct Jump {
    int32_t to;
    uint16_t op;
    friend bool operator==(const Jump&, const Jump&) = default;
  };
  // A state as it is arrived at: the operation waits for the next byte.
  struct Place {
    int32_t state;
    uint16_t op;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  using Places = std::vector<Place>;

  int32_t state();
  // A state with these ways on; equal ones are one state.
  struct Ways {
    std::vector<Edge> edges;
    std::vector<Jump> jumps;
    friend bool operator==(const Ways&, const Ways&) = default;
  };
  struct WaysHash {
    size_t operator()(const Ways& ways) const;
  };
  int32_t state(Ways ways);
  int32_t byte(uint8_t value, int32_t next);
  int32_t choice(int32_t a, int32_t b);

  // The first state of a node that goes on at `next`. Built from the end, so that nodes that go
  // on alike share their states.
  int32_t build(Expressions::Id node, int32_t next);
  int32_t build_new(const Expressions::Node& node, int32_t next);
  void build_code_points(uint32_t low, uint32_t high, int32_t next, Ways& from);
  int32_t build_members(const Expressions::Node& node, int32_t next);
  int32_t build_repeat(const Expressions::Node& node, int32_t next);
  int32_t build_automaton(const Automaton& automaton, int32_t next);

  const Places& closure(int32_t state);
  void gather(const Places& places, std::vector<Edge>& edges) const;

  const Expressions& expressions_;
  size_t max_states_;
  std::vector<Ways> states_;
  std::unordered_multimap<size_t, int32_t> known_;  // by the hash of its ways
  std::unordered_map<uint64_t, int32_t> built_;  // by node and `next`
  std::vector<Places> closures_;
  std::vector<uint8_t> closed_;
  std::vector<int32_t> seen_;  // the closure that last met a state
};

}  // namespace pagemill
