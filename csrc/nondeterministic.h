// From an expression to a deterministic automaton: Thompson's construction and subsets.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "automaton.h"
#include "expression.h"
#include "number_map.h"

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

  // A state's ways on, as pieces of `edges_` and `jumps_`. Edges are disjoint, in ascending order.
  struct Ways {
    uint32_t first_edge = 0, first_jump = 0;
    uint32_t num_edges = 0, num_jumps = 0;
  };

  int32_t state();
  // A state with these ways on; equal ones are one state.
  int32_t state(std::span<const Edge> edges, std::span<const Jump> jumps);
  void set(int32_t state, std::span<const Edge> edges, std::span<const Jump> jumps);
  std::span<const Edge> edges_of(int32_t state) const {
    return {edges_.data() + states_[state].first_edge, states_[state].num_edges};
  }
  std::span<const Jump> jumps_of(int32_t state) const {
    return {jumps_.data() + states_[state].first_jump, states_[state].num_jumps};
  }
  int32_t byte(uint8_t value, int32_t next);
  int32_t choice(int32_t a, int32_t b);

  // The first state of a node that goes on at `next`. Built from the end, so that nodes that go
  // on alike share their states.
  int32_t build(Expressions::Id node, int32_t next);
  int32_t build_new(const Expressions::Node& node, int32_t next);
  void build_code_points(uint32_t low, uint32_t high, int32_t next,
                         std::vector<Edge>& from);
  int32_t build_members(const Expressions::Node& node, int32_t next);
  int32_t build_repeat(const Expressions::Node& node, int32_t next);
  int32_t build_automaton(const Automaton& automaton, int32_t next);

  std::span<const Place> closure(int32_t state);
  void gather(std::span<const Place> places, std::vector<Edge>& edges) const;

  // The deterministic states: sets of places, numbered as they are met.
  int32_t number(std::span<const Place> places);
  int32_t number(int32_t state);  // of its closure
  int32_t number(std::span<const int32_t> states);
  void step(int32_t from);

  const Expressions& expressions_;
  size_t max_states_;
  std::vector<Ways> states_;
  std::vector<Edge> edges_;
  std::vector<Jump> jumps_;
  NumberMap known_;  // by the hash of its ways, or what follows that where it is taken
  NumberMap built_;  // by node and `next`

  struct Piece {
    uint32_t first = 0, size = 0;  // of `places_`; a closure of size 0 isn't known yet
  };
  std::vector<Place> places_;
  std::vector<Piece> closures_;
  std::vector<int32_t> seen_;  // the closure that last met a state
  struct PlacesHash {
    size_t operator()(const Places& places) const;
  };
  std::unordered_map<Places, int32_t, PlacesHash> numbers_;  // of sets of several places
  std::vector<int32_t> number_of_;    // of a state's closure, -1 where it isn't known yet
  std::vector<int32_t> number_of_one_;  // of the set of this place alone
  std::vector<Piece> subsets_;
  Automaton result_;
  // Kept for their memory.
  std::vector<Edge> leaving_, open_;
  std::vector<int32_t> targets_;
  Places pending_, joined_;
};

}  // namespace pagemill
