#include "bounded.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "number_map.h"

namespace pagemill {
namespace {

using Edge = Automaton::Edge;
constexpr int32_t kNever = 1 << 30;
constexpr int32_t kMaxLimit = 0xFFFF;

// Appends the states of `end`; returns the number of its first.
int32_t append_end(Automaton& result, const Automaton& end) {
  const int32_t base = static_cast<int32_t>(result.size());
  for (size_t state = 0; state < end.size(); ++state) result.add(end.final[state] != 0);
  for (size_t state = 0; state < end.size(); ++state) {
    for (Edge edge : end.edges[state]) {
      edge.to += base;
      result.append(base + static_cast<int32_t>(state), edge);
    }
  }
  return base;
}

// Adds the first edges of `end` to a state, under an operation.
void join(Automaton& result, int32_t state, const Automaton& end, int32_t base, uint16_t op) {
  std::vector<Edge>& row = result.edges[state];
  for (Edge edge : end.edges[end.start]) {
    for (const Edge& other : row) {
      if (edge.low <= other.high && other.low <= edge.high) throw Ambiguous();
    }
    if (op != 0 && edge.op != 0) throw Ambiguous();
    edge.op |= op;
    edge.to += base;
    row.push_back(edge);
  }
  std::sort(row.begin(), row.end(), [](const Edge& a, const Edge& b) { return a.low < b.low; });
}

}  // namespace

std::vector<int32_t> Bounds::fewest(const Automaton& body,
                                    const std::vector<uint8_t>& counts) const {
  const size_t n = body.size();
  struct Source {
    int32_t from;
    bool ticks;
  };
  std::vector<std::vector<Source>> into(n);
  for (size_t from = 0; from < n; ++from) {
    for (const Edge& edge : body.edges[from]) {
      into[edge.to].push_back({static_cast<int32_t>(from), edge.op == tick});
    }
  }
  std::vector<int32_t> left(n, kNever);
  std::deque<int32_t> queue;  // by distance: ticks cost one, other edges nothing
  for (size_t state = 0; state < n; ++state) {
    if (body.final[state] == 0 || counts[state] == 0) continue;
    left[state] = 0;
    queue.push_back(static_cast<int32_t>(state));
  }
  while (!queue.empty()) {
    const int32_t to = queue.front();
    queue.pop_front();
    for (const Source& source : into[to]) {
      const int32_t distance = left[to] + (source.ticks ? 1 : 0);
      if (distance >= left[source.from]) continue;
      left[source.from] = distance;
      if (source.ticks) {
        queue.push_back(source.from);
      } else {
        queue.push_front(source.from);
      }
    }
  }
  return left;
}

// Whether one character leads from a state back to it.
bool Bounds::has_loop(const Automaton& body, int32_t state) const {
  std::vector<int32_t> pending;
  for (const Edge& edge : body.edges[state]) {
    if (edge.op == tick) pending.push_back(edge.to);
  }
  for (int step = 0; step < 8 && !pending.empty(); ++step) {
    std::vector<int32_t> next;
    for (const int32_t at : pending) {
      if (at == state) return true;
      for (const Edge& edge : body.edges[at]) {
        if (edge.op != tick) next.push_back(edge.to);
      }
    }
    std::sort(next.begin(), next.end());
    next.erase(std::unique(next.begin(), next.end()), next.end());
    pending = std::move(next);
  }
  return false;
}

bool Bounds::can_count(const Automaton& body) const {
  if (body.empty() || most < 0 || most > kMaxLimit) return false;
  const std::vector<uint8_t> all(body.size(), 1);
  const std::vector<int32_t> left = fewest(body, all);
  if (left[body.start] > most) return false;
  // Every word is long enough: only the upper bound binds.
  if (least <= left[body.start]) return true;
  // Else words of every greater length must go on from each state: the nearest final state of
  // each can repeat a character.
  std::vector<uint8_t> loops(body.size(), 0);
  for (size_t state = 0; state < body.size(); ++state) {
    loops[state] = body.final[state] != 0 && has_loop(body, static_cast<int32_t>(state)) ? 1 : 0;
  }
  return fewest(body, loops) == left;
}

Automaton Bounds::count(const Automaton& body, const Automaton& end, const Op& op) const {
  const std::vector<int32_t> left = fewest(body, std::vector<uint8_t>(body.size(), 1));
  Automaton result;
  for (size_t state = 0; state < body.size(); ++state) result.add(false);
  for (size_t state = 0; state < body.size(); ++state) {
    for (Edge edge : body.edges[state]) {
      if (edge.op == tick) {
        const int32_t limit = most - left[edge.to];
        if (limit <= 0) continue;
        edge.op = op(CounterOp::Kind::kCount, limit);
      }
      result.append(static_cast<int32_t>(state), edge);
    }
  }
  result.start = body.start;
  const int32_t base = append_end(result, end);
  const uint16_t close = op(CounterOp::Kind::kClose, least);
  for (size_t state = 0; state < body.size(); ++state) {
    if (body.final[state] != 0) join(result, static_cast<int32_t>(state), end, base, close);
  }
  return result;
}

Automaton Bounds::unroll(const Automaton& body, const Automaton& end, size_t max_states) const {
  Automaton result;
  if (body.empty() || end.empty()) return result;
  const std::vector<int32_t> left = fewest(body, std::vector<uint8_t>(body.size(), 1));
  struct Counted {
    int32_t state, count;
  };
  std::vector<Counted> states;
  NumberMap numbers;
  const auto number = [&](int32_t state, int32_t count) {
    const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(count)) << 32 |
                         static_cast<uint32_t>(state);
    const auto [known, added] = numbers.emplace(key, static_cast<int32_t>(states.size()));
    if (added) {
      if (states.size() >= max_states) throw TooManyStates();
      states.push_back({state, count});
    }
    return known;
  };
  number(body.start, 0);
  for (size_t i = 0; i < states.size(); ++i) {
    const Counted at = states[i];
    const int32_t from = result.add(false);
    for (Edge edge : body.edges[at.state]) {
      int32_t count = at.count;
      if (edge.op == tick) {
        edge.op = 0;
        // Without an upper bound, all counts that are enough are one.
        count = most < 0 ? std::min(count + 1, least) : count + 1;
      }
      if (most >= 0 && count + left[edge.to] > most) continue;
      edge.to = number(edge.to, count);
      result.append(from, edge);
    }
  }
  const int32_t base = append_end(result, end);
  for (size_t i = 0; i < states.size(); ++i) {
    if (body.final[states[i].state] != 0 && states[i].count >= least) {
      join(result, static_cast<int32_t>(i), end, base, 0);
    }
  }
  return result;
}

}  // namespace pagemill
