#include "nondeterministic.h"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace pagemill {
namespace {

int utf8_length(uint32_t code) { return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4; }

std::array<uint8_t, 4> utf8(uint32_t code) {
  const auto tail = [code](int shift) { return static_cast<uint8_t>(0x80 | (code >> shift & 0x3F)); };
  switch (utf8_length(code)) {
    case 1: return {static_cast<uint8_t>(code)};
    case 2: return {static_cast<uint8_t>(0xC0 | code >> 6), tail(0)};
    case 3: return {static_cast<uint8_t>(0xE0 | code >> 12), tail(6), tail(0)};
    default: return {static_cast<uint8_t>(0xF0 | code >> 18), tail(12), tail(6), tail(0)};
  }
}

}  // namespace

size_t Nondeterministic::PlacesHash::operator()(const Places& places) const {
  uint64_t hash = places.size();
  for (const Place& place : places) {
    hash = (hash ^ static_cast<uint32_t>(place.state) ^ uint64_t{place.op} << 40) *
           0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
  }
  return hash;
}

int32_t Nondeterministic::state() {
  if (states_.size() >= 8 * max_states_) throw TooManyStates();
  states_.emplace_back();
  return static_cast<int32_t>(states_.size()) - 1;
}

void Nondeterministic::set(int32_t state, std::span<const Edge> edges,
                           std::span<const Jump> jumps) {
  states_[state] = {static_cast<uint32_t>(edges_.size()), static_cast<uint32_t>(jumps_.size()),
                    static_cast<uint32_t>(edges.size()), static_cast<uint32_t>(jumps.size())};
  edges_.insert(edges_.end(), edges.begin(), edges.end());
  jumps_.insert(jumps_.end(), jumps.begin(), jumps.end());
}

int32_t Nondeterministic::state(std::span<const Edge> edges, std::span<const Jump> jumps) {
  if (edges.empty() && jumps.size() == 1 && jumps[0].op == 0) return jumps[0].to;
  uint64_t hash = edges.size();
  const auto add = [&hash](uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
  };
  for (const Edge& edge : edges) {
    add(static_cast<uint32_t>(edge.to) ^ uint64_t{edge.low} << 32 ^ uint64_t{edge.high} << 40 ^
        uint64_t{edge.op} << 48);
  }
  for (const Jump& jump : jumps) add(static_cast<uint32_t>(jump.to) ^ uint64_t{jump.op} << 48);
  for (;; ++hash) {
    const auto [known, added] = known_.emplace(hash, static_cast<int32_t>(states_.size()));
    if (added) break;
    if (std::ranges::equal(edges_of(known), edges) && std::ranges::equal(jumps_of(known), jumps)) {
      return known;
    }
  }
  const int32_t made = state();
  set(made, edges, jumps);
  return made;
}

int32_t Nondeterministic::byte(uint8_t value, int32_t next) {
  const Edge edge{value, value, 0, next};
  return state({&edge, 1}, {});
}

int32_t Nondeterministic::choice(int32_t a, int32_t b) {
  if (a == b) return a;
  const std::array<Jump, 2> jumps{Jump{a, 0}, Jump{b, 0}};
  return state({}, jumps);
}

int32_t Nondeterministic::build(Expressions::Id id, int32_t next) {
  const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(id)) << 32 |
                       static_cast<uint32_t>(next);
  if (const int32_t known = built_.find(key); known >= 0) return known;
  const int32_t made = build_new(expressions_.at(id), next);
  built_.emplace(key, made);
  return made;
}

int32_t Nondeterministic::build_new(const Expressions::Node& node, int32_t next) {
  using Kind = Expressions::Kind;
  switch (node.kind) {
    case Kind::kLiteral:
      for (auto at = node.bytes.rbegin(); at != node.bytes.rend(); ++at) {
        next = byte(static_cast<uint8_t>(*at), next);
      }
      return next;
    case Kind::kCharacters: {
      std::vector<Edge> from;
      for (const auto& [low, high] : node.ranges) build_code_points(low, high, next, from);
      return state(from, {});
    }
    case Kind::kConcat:
      for (auto part = node.children.rbegin(); part != node.children.rend(); ++part) {
        next = build(*part, next);
      }
      return next;
    case Kind::kEither: {
      std::vector<int32_t> options;
      for (const Expressions::Id option : node.children) options.push_back(build(option, next));
      std::sort(options.begin(), options.end());
      options.erase(std::unique(options.begin(), options.end()), options.end());
      std::vector<Jump> from;
      for (const int32_t option : options) from.push_back({option, 0});
      return state({}, from);
    }
    case Kind::kRepeat:
      return build_repeat(node, next);
    case Kind::kCounted: {
      const Jump jump{build(node.children[0], next), node.op};
      return state({}, {&jump, 1});
    }
    case Kind::kMembers:
      return build_members(node, next);
    case Kind::kAutomaton:
      return build_automaton(*node.automaton, next);
  }
  return next;
}

// Splits the range where lengths or leading bytes change, until each byte has a range of its own.
void Nondeterministic::build_code_points(uint32_t low, uint32_t high, int32_t next,
                                         std::vector<Edge>& from) {
  for (const uint32_t last : {0x7Fu, 0x7FFu, 0xFFFFu}) {
    if (low <= last && last < high) {
      build_code_points(low, last, next, from);
      build_code_points(last + 1, high, next, from);
      return;
    }
  }
  const int length = utf8_length(low);
  for (int tail = 1; tail < length; ++tail) {
    const uint32_t mask = (1u << (6 * tail)) - 1;
    if ((low & ~mask) == (high & ~mask)) continue;
    if ((low & mask) != 0) {
      build_code_points(low, low | mask, next, from);
      build_code_points((low | mask) + 1, high, next, from);
      return;
    }
    if ((high & mask) != mask) {
      build_code_points(low, (high & ~mask) - 1, next, from);
      build_code_points(high & ~mask, high, next, from);
      return;
    }
  }
  const auto first = utf8(low);
  const auto last = utf8(high);
  for (int i = length - 1; i > 0; --i) {
    const Edge edge{first[i], last[i], 0, next};
    next = state({&edge, 1}, {});
  }
  from.push_back({first[0], last[0], 0, next});
}

int32_t Nondeterministic::build_repeat(const Expressions::Node& node, int32_t next) {
  const Expressions::Id child = node.children[0];
  int32_t from = next;
  if (node.most < 0) {
    from = state();  // a loop has a state of its own
    const int32_t again = build(child, from);
    set(from, {}, std::array{Jump{again, 0}, Jump{next, 0}});
  }
  for (int32_t i = node.least; i < node.most; ++i) from = choice(build(child, from), next);
  for (int32_t i = 0; i < node.least; ++i) from = build(child, from);
  return from;
}

// Two tracks: nothing written yet, and something written, where a comma goes first; the second
// once for each count as far as counts matter.
int32_t Nondeterministic::build_members(const Expressions::Node& node, int32_t next) {
  const size_t n = node.required.size();
  const int32_t least = node.least;
  const int32_t most = node.most;
  const int32_t last = most >= 0 ? most : least;
  const int32_t dead = state({}, {});
  const auto one_more = [&](int32_t count) {
    return most >= 0 ? count + 1 : std::min(count + 1, least);
  };
  std::vector<int32_t> something(last + 1, dead);
  for (int32_t count = least; count <= last; ++count) something[count] = next;
  int32_t nothing = least == 0 ? next : dead;
  if (node.children.size() > n) {
    const Expressions::Id rest = node.children[n];
    if (most < 0) {
      const int32_t loop = state();
      const int32_t again = byte(',', build(rest, loop));
      set(loop, {}, std::array{Jump{again, 0}, Jump{next, 0}});
      for (int32_t count = least; count <= last; ++count) something[count] = loop;
      if (least > 0) something[least - 1] = again;
      if (least <= 1) nothing = choice(build(rest, loop), nothing);
    } else {
      for (int32_t count = last - 1; count >= std::max(least - 1, 0); --count) {
        something[count] = choice(byte(',', build(rest, something[count + 1])), something[count]);
      }
      if (least <= 1 && most > 0) nothing = choice(build(rest, something[1]), nothing);
    }
  }
  for (size_t i = n; i-- > 0;) {
    const bool required = node.required[i] != 0;
    const auto member = [&](int32_t count) {
      const bool may_follow = most < 0 || count < most;
      return may_follow ? build(node.children[i], something[one_more(count)]) : dead;
    };
    const int32_t first = member(0);
    nothing = required ? first : choice(first, nothing);
    // In ascending order: what goes on behind a member has a higher count, or is set last.
    for (int32_t count = 0; count <= last; ++count) {
      const int32_t comma = byte(',', member(count));
      something[count] = required ? comma : choice(comma, something[count]);
    }
  }
  return nothing;
}

int32_t Nondeterministic::build_automaton(const Automaton& automaton, int32_t next) {
  if (automaton.empty()) return state({}, {});
  const int32_t base = static_cast<int32_t>(states_.size());
  for (size_t i = 0; i < automaton.size(); ++i) state();
  std::vector<Edge> edges;
  const Jump out{next, 0};
  for (size_t i = 0; i < automaton.size(); ++i) {
    edges = automaton.edges[i];
    for (Edge& edge : edges) edge.to += base;
    set(base + static_cast<int32_t>(i), edges,
        automaton.final[i] != 0 ? std::span(&out, 1) : std::span<const Jump>());
  }
  return base + automaton.start;
}

// The places that a state stands for: those with edges, and the end. Valid until the next call.
std::span<const Nondeterministic::Place> Nondeterministic::closure(int32_t of) {
  Piece& known = closures_[of];
  if (known.size > 0) return {places_.data() + known.first, known.size};
  known.first = static_cast<uint32_t>(places_.size());
  pending_.assign(1, {of, 0});
  seen_[of] = of;
  const auto is_new = [&](const Place& to) {
    // Plain places by a stamp; those under an operation are few.
    if (to.op != 0) return std::find(pending_.begin(), pending_.end(), to) == pending_.end();
    if (seen_[to.state] == of) return false;
    seen_[to.state] = of;
    return true;
  };
  for (size_t head = 0; head < pending_.size(); ++head) {
    const Place place = pending_[head];
    const bool end = place.state == 0;
    if (end && place.op != 0) throw Ambiguous();
    if (end || !edges_of(place.state).empty()) places_.push_back(place);
    for (const Jump& jump : jumps_of(place.state)) {
      if (jump.op != 0 && place.op != 0) throw Ambiguous();
      const Place to{jump.to, static_cast<uint16_t>(jump.op | place.op)};
      if (is_new(to)) pending_.push_back(to);
    }
  }
  known.size = static_cast<uint32_t>(places_.size()) - known.first;
  std::sort(places_.begin() + known.first, places_.end());
  return {places_.data() + known.first, known.size};
}

void Nondeterministic::gather(std::span<const Place> places, std::vector<Edge>& edges) const {
  edges.clear();
  for (const Place& place : places) {
    for (Edge edge : edges_of(place.state)) {
      if (edge.op != 0 && place.op != 0) throw Ambiguous();
      edge.op |= place.op;
      edges.push_back(edge);
    }
  }
  if (places.size() == 1) return;
  std::sort(edges.begin(), edges.end(),
            [](const Edge& a, const Edge& b) { return a.low < b.low; });
}

int32_t Nondeterministic::number(std::span<const Place> places) {
  const auto next = static_cast<int32_t>(subsets_.size());
  int32_t* known = nullptr;
  if (places.size() == 1 && places[0].op == 0) {
    known = &number_of_one_[places[0].state];
  } else {
    known = &numbers_.try_emplace(Places(places.begin(), places.end()), -1).first->second;
  }
  if (*known >= 0) return *known;
  if (subsets_.size() >= max_states_) throw TooManyStates();
  result_.add(!places.empty() && places[0].state == 0);
  // They may be places already kept, of a closure.
  const bool kept = places.data() >= places_.data() && places.data() < places_.data() + places_.size();
  if (kept) {
    subsets_.push_back({static_cast<uint32_t>(places.data() - places_.data()),
                        static_cast<uint32_t>(places.size())});
  } else {
    subsets_.push_back(
        {static_cast<uint32_t>(places_.size()), static_cast<uint32_t>(places.size())});
    places_.insert(places_.end(), places.begin(), places.end());
  }
  return *known = next;
}

int32_t Nondeterministic::number(int32_t state) {
  if (number_of_[state] < 0) number_of_[state] = number(closure(state));
  return number_of_[state];
}

int32_t Nondeterministic::number(std::span<const int32_t> states) {
  joined_.clear();
  for (const int32_t state : states) {
    const std::span<const Place> more = closure(state);
    joined_.insert(joined_.end(), more.begin(), more.end());
  }
  std::sort(joined_.begin(), joined_.end());
  joined_.erase(std::unique(joined_.begin(), joined_.end()), joined_.end());
  return number(joined_);
}

// The edges of a deterministic state. Where edges overlap, from one border to the next.
void Nondeterministic::step(int32_t from) {
  gather({places_.data() + subsets_[from].first, subsets_[from].size}, leaving_);
  open_.clear();
  int low = 0;
  for (size_t i = 0; i < leaving_.size() || !open_.empty();) {
    if (open_.empty()) low = leaving_[i].low;
    for (; i < leaving_.size() && leaving_[i].low == low; ++i) open_.push_back(leaving_[i]);
    int high = i < leaving_.size() ? leaving_[i].low - 1 : 255;
    targets_.clear();
    for (const Edge& edge : open_) {
      if (edge.op != open_[0].op) throw Ambiguous();
      high = std::min<int>(high, edge.high);
      targets_.push_back(edge.to);
    }
    if (targets_.size() > 1) {
      std::sort(targets_.begin(), targets_.end());
      targets_.erase(std::unique(targets_.begin(), targets_.end()), targets_.end());
    }
    const int32_t to = targets_.size() == 1 ? number(targets_[0]) : number(targets_);
    result_.append(from, {static_cast<uint8_t>(low), static_cast<uint8_t>(high), open_[0].op, to});
    low = high + 1;
    std::erase_if(open_, [low](const Edge& edge) { return edge.high < low; });
  }
}

Automaton Nondeterministic::determinise(Expressions::Id node) {
  const int32_t end = state();  // the first of all: 0
  const int32_t begin = build(node, end);
  closures_.resize(states_.size());
  seen_.assign(states_.size(), -1);
  number_of_.assign(states_.size(), -1);
  number_of_one_.assign(states_.size(), -1);
  number(begin);
  for (size_t from = 0; from < subsets_.size(); ++from) {
    step(static_cast<int32_t>(from));
  }
  return std::move(result_);
}

}  // namespace pagemill
