#include "nondeterministic.h"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace pagemill {
namespace {

struct PlacesHash {
  template <typename Places>
  size_t operator()(const Places& places) const {
    uint64_t hash = places.size();
    for (const auto& place : places) {
      hash = (hash ^ static_cast<uint32_t>(place.state) ^ uint64_t{place.op} << 40) *
             0x9E3779B97F4A7C15ull;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

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

size_t Nondeterministic::WaysHash::operator()(const Ways& ways) const {
  uint64_t hash = ways.edges.size();
  const auto add = [&hash](uint64_t value) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
  };
  for (const Edge& edge : ways.edges) {
    add(static_cast<uint32_t>(edge.to) ^ uint64_t{edge.low} << 32 ^ uint64_t{edge.high} << 40 ^
        uint64_t{edge.op} << 48);
  }
  for (const Jump& jump : ways.jumps) add(static_cast<uint32_t>(jump.to) ^ uint64_t{jump.op} << 48);
  return hash;
}

int32_t Nondeterministic::state() {
  if (states_.size() >= 8 * max_states_) throw TooManyStates();
  states_.emplace_back();
  return static_cast<int32_t>(states_.size()) - 1;
}

int32_t Nondeterministic::state(Ways ways) {
  if (ways.edges.empty() && ways.jumps.size() == 1 && ways.jumps[0].op == 0) {
    return ways.jumps[0].to;
  }
  const size_t hash = WaysHash()(ways);
  const auto [first, last] = known_.equal_range(hash);
  for (auto known = first; known != last; ++known) {
    if (states_[known->second] == ways) return known->second;
  }
  const int32_t made = state();
  states_[made] = std::move(ways);
  known_.emplace(hash, made);
  return made;
}

int32_t Nondeterministic::byte(uint8_t value, int32_t next) {
  return state({{{value, value, 0, next}}, {}});
}

int32_t Nondeterministic::choice(int32_t a, int32_t b) {
  if (a == b) return a;
  return state({{}, {{a, 0}, {b, 0}}});
}

int32_t Nondeterministic::build(Expressions::Id id, int32_t next) {
  const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(id)) << 32 |
                       static_cast<uint32_t>(next);
  if (const auto found = built_.find(key); found != built_.end()) return found->second;
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
      Ways from;
      for (const auto& [low, high] : node.ranges) build_code_points(low, high, next, from);
      return state(std::move(from));
    }
    case Kind::kConcat:
      for (auto part = node.children.rbegin(); part != node.children.rend(); ++part) {
        next = build(*part, next);
      }
      return next;
    case Kind::kEither: {
      Ways from;
      std::vector<int32_t> options;
      for (const Expressions::Id option : node.children) options.push_back(build(option, next));
      std::sort(options.begin(), options.end());
      options.erase(std::unique(options.begin(), options.end()), options.end());
      for (const int32_t option : options) from.jumps.push_back({option, 0});
      return state(std::move(from));
    }
    case Kind::kRepeat:
      return build_repeat(node, next);
    case Kind::kCounted:
      return state({{}, {{build(node.children[0], next), node.op}}});
    case Kind::kMembers:
      return build_members(node, next);
    case Kind::kAutomaton:
      return build_automaton(*node.automaton, next);
  }
  return next;
}

// Splits the range where lengths or leading bytes change, until each byte has a range of its own.
void Nondeterministic::build_code_points(uint32_t low, uint32_t high, int32_t next, Ways& from) {
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
  for (int i = length - 1; i > 0; --i) next = state({{{first[i], last[i], 0, next}}, {}});
  from.edges.push_back({first[0], last[0], 0, next});
}

int32_t Nondeterministic::build_repeat(const Expressions::Node& node, int32_t next) {
  const Expressions::Id child = node.children[0];
  int32_t from = next;
  if (node.most < 0) {
    from = state();  // a loop has a state of its own
    const int32_t again = build(child, from);
    states_[from].jumps = {{again, 0}, {next, 0}};
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
  const int32_t dead = state(Ways{});
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
      states_[loop].jumps = {{again, 0}, {next, 0}};
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
  if (automaton.empty()) return state({});
  const int32_t base = static_cast<int32_t>(states_.size());
  for (size_t i = 0; i < automaton.size(); ++i) state();
  for (size_t i = 0; i < automaton.size(); ++i) {
    Ways& ways = states_[base + i];
    for (Edge edge : automaton.edges[i]) {
      edge.to += base;
      ways.edges.push_back(edge);
    }
    if (automaton.final[i] != 0) ways.jumps.push_back({next, 0});
  }
  return base + automaton.start;
}

// The places that a state stands for: those with edges, and the end.
const Nondeterministic::Places& Nondeterministic::closure(int32_t of) {
  Places& places = closures_[of];
  if (closed_[of] != 0) return places;
  closed_[of] = 1;
  Places seen{{of, 0}};
  seen_[of] = of;
  const auto is_new = [&](const Place& to) {
    // Plain places by a stamp; those under an operation are few.
    if (to.op != 0) return std::find(seen.begin(), seen.end(), to) == seen.end();
    if (seen_[to.state] == of) return false;
    seen_[to.state] = of;
    return true;
  };
  for (size_t head = 0; head < seen.size(); ++head) {
    const Place place = seen[head];
    const bool end = place.state == 0;
    if (end && place.op != 0) throw Ambiguous();
    if (end || !states_[place.state].edges.empty()) places.push_back(place);
    for (const Jump& jump : states_[place.state].jumps) {
      if (jump.op != 0 && place.op != 0) throw Ambiguous();
      const Place to{jump.to, static_cast<uint16_t>(jump.op | place.op)};
      if (is_new(to)) seen.push_back(to);
    }
  }
  std::sort(places.begin(), places.end());
  return places;
}

void Nondeterministic::gather(const Places& places, std::vector<Edge>& edges) const {
  edges.clear();
  for (const Place& place : places) {
    for (Edge edge : states_[place.state].edges) {
      if (edge.op != 0 && place.op != 0) throw Ambiguous();
      edge.op |= place.op;
      edges.push_back(edge);
    }
  }
  std::sort(edges.begin(), edges.end(),
            [](const Edge& a, const Edge& b) { return a.low < b.low; });
}

Automaton Nondeterministic::determinise(Expressions::Id node) {
  const int32_t end = state();  // the first of all
  const int32_t begin = build(node, end);
  closures_.resize(states_.size());
  closed_.assign(states_.size(), 0);
  seen_.assign(states_.size(), -1);

  Automaton result;
  std::unordered_map<Places, int32_t, PlacesHash> numbers;
  std::vector<const Places*> subsets;
  const auto number = [&](const Places& places) {
    const auto [found, added] = numbers.try_emplace(places, static_cast<int32_t>(subsets.size()));
    if (added) {
      if (subsets.size() >= max_states_) throw TooManyStates();
      subsets.push_back(&found->first);
      result.add(!places.empty() && places.front().state == end);
    }
    return found->second;
  };
  number(closure(begin));
  std::vector<Edge> edges;
  std::vector<int32_t> targets;
  Places joined;
  for (size_t from = 0; from < subsets.size(); ++from) {
    gather(*subsets[from], edges);
    // Byte by byte where edges overlap, from one border to the next.
    for (size_t i = 0; i < edges.size();) {
      size_t behind_group = i + 1;
      int group_high = edges[i].high;
      while (behind_group < edges.size() && edges[behind_group].low <= group_high) {
        group_high = std::max<int>(group_high, edges[behind_group++].high);
      }
      for (int low = edges[i].low; low <= group_high;) {
        int high = group_high;
        targets.clear();
        uint16_t op = 0;
        for (size_t k = i; k < behind_group; ++k) {
          const Edge& edge = edges[k];
          if (edge.low > low) {
            high = std::min<int>(high, edge.low - 1);
          } else if (edge.high >= low) {
            high = std::min<int>(high, edge.high);
            if (!targets.empty() && edge.op != op) throw Ambiguous();
            op = edge.op;
            targets.push_back(edge.to);
          }
        }
        if (!targets.empty()) {
          const Places* to = &closure(targets[0]);
          if (targets.size() > 1) {
            joined.clear();
            for (const int32_t target : targets) {
              const Places& more = closure(target);
              joined.insert(joined.end(), more.begin(), more.end());
            }
            std::sort(joined.begin(), joined.end());
            joined.erase(std::unique(joined.begin(), joined.end()), joined.end());
            to = &joined;
          }
          const int32_t target = number(*to);
          result.append(static_cast<int32_t>(from),
                        {static_cast<uint8_t>(low), static_cast<uint8_t>(high), op, target});
        }
        low = high + 1;
      }
      i = behind_group;
    }
  }
  return result;
}

}  // namespace pagemill
