#include "expression.h"

#include <algorithm>
#include <stdexcept>

#include "bounded.h"
#include "nondeterministic.h"

namespace pagemill {

const Expressions::Node& Expressions::at(Id id) const {
  if (id < 0 || static_cast<size_t>(id) >= nodes_.size()) {
    throw std::invalid_argument("no node " + std::to_string(id));
  }
  return nodes_[id];
}

std::string Expressions::Node::key() const {
  std::string key(1, static_cast<char>(kind));
  const auto put = [&key](auto value) {
    for (size_t i = 0; i < sizeof(value); ++i) key.push_back(static_cast<char>(value >> (8 * i)));
  };
  put(op);
  put(least);
  put(most);
  for (const Id child : children) put(child);
  key.append(required.begin(), required.end());
  for (const auto& [low, high] : ranges) {
    put(low);
    put(high);
  }
  return key + bytes;
}

Expressions::Id Expressions::add(Node node) {
  for (const Id child : node.children) at(child);
  const auto [known, added] = known_.try_emplace(node.key(), static_cast<Id>(nodes_.size()));
  if (!added) return known->second;
  nodes_.push_back(std::move(node));
  compiled_.emplace_back();
  return static_cast<Id>(nodes_.size()) - 1;
}

Expressions::Id Expressions::add(Automaton automaton) {
  Node node(Kind::kAutomaton);
  node.least = static_cast<int32_t>(nodes_.size());  // like no other
  node.automaton = std::make_shared<const Automaton>(std::move(automaton));
  const Id id = add(std::move(node));
  compiled_[id] = nodes_[id].automaton;
  return id;
}

Expressions::Id Expressions::literal(std::string bytes) {
  Node node(Kind::kLiteral);
  node.bytes = std::move(bytes);
  return add(std::move(node));
}

Expressions::Id Expressions::characters(const CodePoints& ranges) {
  Node node(Kind::kCharacters);
  for (const auto& [low, high] : ranges) {
    if (low > high || high > 0x10FFFF) throw std::invalid_argument("not a range of code points");
    if (low < 0xD800) node.ranges.emplace_back(low, std::min(high, 0xD7FFu));
    if (high > 0xDFFF) node.ranges.emplace_back(std::max(low, 0xE000u), high);
  }
  return add(std::move(node));
}

Expressions::Id Expressions::concat(std::vector<Id> parts) {
  Node node(Kind::kConcat);
  node.children = std::move(parts);
  return add(std::move(node));
}

Expressions::Id Expressions::either(std::vector<Id> options) {
  Node node(Kind::kEither);
  node.children = std::move(options);
  return add(std::move(node));
}

Expressions::Id Expressions::repeat(Id id, int32_t least, int32_t most) {
  if (least < 0 || (most >= 0 && most < least)) throw std::invalid_argument("bounds of a repeat");
  Node node(Kind::kRepeat);
  node.children = {id};
  node.least = least;
  node.most = most;
  return add(std::move(node));
}

Expressions::Id Expressions::counted(Id id, CounterOp op) {
  Node node(Kind::kCounted);
  node.children = {id};
  node.op = intern(op);
  return add(std::move(node));
}

Expressions::Id Expressions::members(std::vector<std::pair<Id, bool>> members, Id rest,
                                     int32_t least, int32_t most) {
  if (least < 0 || (most >= 0 && most < least)) throw std::invalid_argument("bounds of members");
  if (std::max(least, most) > 10'000) throw TooManyStates();
  Node node(Kind::kMembers);
  node.least = least;
  node.most = most;
  for (const auto& [id, required] : members) {
    node.children.push_back(id);
    node.required.push_back(required ? 1 : 0);
  }
  if (rest >= 0) node.children.push_back(rest);  // one more than there are in `required`
  return add(std::move(node));
}

Expressions::Id Expressions::automaton(size_t num_states, std::span<const Automaton::Edge> edges,
                                       std::span<const int32_t> from,
                                       std::span<const int32_t> finals) {
  Automaton made;
  const auto known = [&](int32_t state) {
    if (state < 0 || static_cast<size_t>(state) >= num_states) {
      throw std::invalid_argument("no such state");
    }
    return static_cast<size_t>(state);
  };
  if (num_states > max_states_) throw TooManyStates();
  for (size_t state = 0; state < num_states; ++state) made.add(false);
  for (const int32_t state : finals) made.final[known(state)] = 1;
  for (size_t i = 0; i < edges.size(); ++i) {
    known(edges[i].to);
    auto& row = made.edges[known(from[i])];
    if (edges[i].low > edges[i].high || (!row.empty() && edges[i].low <= row.back().high)) {
      throw std::invalid_argument("edges of a state are disjoint and in order");
    }
    row.push_back(edges[i]);
  }
  return add(minimise(made));
}

Expressions::Id Expressions::intersect(Id a, Id b) {
  const auto left = compiled(a);
  const auto right = compiled(b);
  return add(minimise(pagemill::intersect(*left, *right, max_states_)));
}

Expressions::Id Expressions::subtract(Id a, Id b) {
  const auto left = compiled(a);
  const auto right = compiled(b);
  return add(minimise(pagemill::subtract(*left, *right, max_states_)));
}

Expressions::Id Expressions::bounded(Id body, Id end, CounterOp tick, int32_t least, int32_t most,
                                     int counter) {
  if (least < 0 || (most >= 0 && most < least)) throw std::invalid_argument("bounds of a length");
  const auto inner = compiled(body);
  const auto after = compiled(end);
  const uint16_t ticks = intern(tick);
  const auto op = [this, counter](CounterOp::Kind kind, int32_t limit) {
    return intern({static_cast<uint8_t>(counter), kind, static_cast<uint16_t>(limit)});
  };
  const Bounds bounds{ticks, least, most};
  if (counter >= 0 && bounds.can_count(*inner)) {
    return add(minimise(bounds.count(*inner, *after, op)));
  }
  return add(minimise(bounds.unroll(*inner, *after, max_states_)));
}

uint16_t Expressions::intern(CounterOp op) {
  if (op.counter >= kMaxCounters) throw std::invalid_argument("no such counter");
  for (size_t i = 0; i < ops_.size(); ++i) {
    if (ops_[i].counter == op.counter && ops_[i].kind == op.kind && ops_[i].limit == op.limit) {
      return static_cast<uint16_t>(i + 1);
    }
  }
  if (ops_.size() >= 0xFFF0) throw std::invalid_argument("too many different bounds");
  ops_.push_back(op);
  return static_cast<uint16_t>(ops_.size());
}

bool Expressions::is_empty(Id node) { return compiled(node)->empty(); }

std::shared_ptr<const Automaton> Expressions::compiled(Id id) {
  at(id);
  if (compiled_[id] == nullptr) {
    compiled_[id] = std::make_shared<const Automaton>(
        minimise(Nondeterministic(*this, max_states_).determinise(id)));
  }
  return compiled_[id];
}

const Automaton& Expressions::compile(Id node) { return *compiled(node); }

}  // namespace pagemill
