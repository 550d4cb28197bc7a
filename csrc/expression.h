// Regular expressions over bytes as a growing list of nodes, compiled to automata.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "automaton.h"
#include "byte_dfa.h"

namespace pagemill {

// Nodes are named by their index and may be used any number of times; equal ones are one. What is wrong with an
// argument is an std::invalid_argument. One thread at a time.
class Expressions {
 public:
  using Id = int32_t;
  using CodePoints = std::vector<std::pair<uint32_t, uint32_t>>;

  // `max_states` bounds every automaton on the way, nondeterministic ones included.
  explicit Expressions(size_t max_states) : max_states_(max_states) {}

  Id literal(std::string bytes);
  // One code point out of inclusive ranges, in UTF-8; surrogates stand for nothing.
  Id characters(const CodePoints& ranges);
  Id concat(std::vector<Id> parts);
  Id either(std::vector<Id> options);
  // `most` of -1: without limit.
  Id repeat(Id node, int32_t least, int32_t most);
  // The node, its first byte under a counter operation. Not for a node that may be empty.
  Id counted(Id node, CounterOp op);
  // Members in order with commas between, those not required perhaps left out, then any number of
  // `rest` (-1: none); `least` to `most` (-1: any number) in all, `rest` being one towards `least`.
  Id members(std::vector<std::pair<Id, bool>> members, Id rest, int32_t least, int32_t most);
  // An automaton given by its edges between `num_states` states, the first of which is its start.
  Id automaton(size_t num_states, std::span<const Automaton::Edge> edges,
               std::span<const int32_t> from, std::span<const int32_t> finals);
  Id intersect(Id a, Id b);
  Id subtract(Id a, Id b);
  // The words of `body` that have `least` to `most` characters, then `end`. A character is what
  // begins with a byte under `tick`. With a counter where it can say so without a dead end, if
  // `counter` >= 0; else by one state for each count.
  Id bounded(Id body, Id end, CounterOp tick, int32_t least, int32_t most, int counter);

  std::span<const CounterOp> ops() const { return ops_; }
  bool is_empty(Id node);

  // Ambiguous, TooManyStates.
  const Automaton& compile(Id node);

 private:
  friend class Nondeterministic;
  enum class Kind : uint8_t { kLiteral, kCharacters, kConcat, kEither, kRepeat, kCounted,
                              kMembers, kAutomaton };
  struct Node {
    explicit Node(Kind k) : kind(k) {}
    std::string key() const;  // equal for equal nodes
    Kind kind;
    std::string bytes;
    CodePoints ranges;
    std::vector<Id> children;
    std::vector<uint8_t> required;
    int32_t least = 0, most = 0;
    uint16_t op = 0;
    std::shared_ptr<const Automaton> automaton;
  };

  Id add(Node node);
  Id add(Automaton automaton);
  const Node& at(Id id) const;
  std::shared_ptr<const Automaton> compiled(Id id);
  uint16_t intern(CounterOp op);

  size_t max_states_;
  std::vector<Node> nodes_;
  std::unordered_map<std::string, Id> known_;
  std::vector<std::shared_ptr<const Automaton>> compiled_;
  std::vector<CounterOp> ops_;
};

}  // namespace pagemill
