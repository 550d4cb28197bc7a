#include "automaton.h"

#include <algorithm>
#include <array>
#include <utility>

#include "number_map.h"

namespace pagemill {
namespace {

using Edge = Automaton::Edge;

// Pairs of states of a product, numbered as they are met. A second state of -1 is a dead one.
class Pairs {
 public:
  explicit Pairs(size_t most) : most_(most) {}

  int32_t number(int32_t a, int32_t b) {
    const uint64_t key = static_cast<uint64_t>(static_cast<uint32_t>(a)) << 32 |
                         static_cast<uint32_t>(b);
    const auto [number, added] = numbers_.emplace(key, static_cast<int32_t>(pairs_.size()));
    if (added) {
      if (pairs_.size() >= most_) throw TooManyStates();
      pairs_.emplace_back(a, b);
    }
    return number;
  }
  size_t size() const { return pairs_.size(); }
  std::pair<int32_t, int32_t> operator[](size_t i) const { return pairs_[i]; }

 private:
  size_t most_;
  NumberMap numbers_;
  std::vector<std::pair<int32_t, int32_t>> pairs_;
};

void same_op(const Edge& a, const Edge& b) {
  if (a.op != b.op) throw Ambiguous();
}

}  // namespace

int32_t Automaton::add(bool is_final) {
  edges.emplace_back();
  final.push_back(is_final ? 1 : 0);
  return static_cast<int32_t>(edges.size()) - 1;
}

void Automaton::append(int32_t from, const Edge& edge) {
  std::vector<Edge>& row = edges[from];
  if (!row.empty()) {
    Edge& last = row.back();
    if (last.high + 1 == edge.low && last.op == edge.op && last.to == edge.to) {
      last.high = edge.high;
      return;
    }
  }
  row.push_back(edge);
}

Automaton trim(const Automaton& automaton) {
  const size_t n = automaton.size();
  Automaton result;
  if (n == 0) return result;
  std::vector<int32_t> first(n + 1, 0);
  for (const auto& row : automaton.edges) {
    for (const Edge& edge : row) ++first[edge.to + 1];
  }
  for (size_t i = 0; i < n; ++i) first[i + 1] += first[i];
  std::vector<int32_t> sources(first[n]);
  std::vector<int32_t> fill(first.begin(), first.end() - 1);
  for (size_t from = 0; from < n; ++from) {
    for (const Edge& edge : automaton.edges[from]) {
      sources[fill[edge.to]++] = static_cast<int32_t>(from);
    }
  }
  std::vector<uint8_t> alive(n, 0);
  std::vector<int32_t> queue;
  for (size_t state = 0; state < n; ++state) {
    if (automaton.final[state] == 0) continue;
    alive[state] = 1;
    queue.push_back(static_cast<int32_t>(state));
  }
  for (size_t head = 0; head < queue.size(); ++head) {
    const int32_t to = queue[head];
    for (int32_t i = first[to]; i < first[to + 1]; ++i) {
      const int32_t from = sources[i];
      if (alive[from] != 0) continue;
      alive[from] = 1;
      queue.push_back(from);
    }
  }
  if (alive[automaton.start] == 0) return result;
  std::vector<int32_t> number(n, -1);
  queue.assign(1, automaton.start);
  number[automaton.start] = result.add(automaton.final[automaton.start] != 0);
  for (size_t head = 0; head < queue.size(); ++head) {
    for (Edge edge : automaton.edges[queue[head]]) {
      if (alive[edge.to] == 0) continue;
      if (number[edge.to] < 0) {
        number[edge.to] = result.add(automaton.final[edge.to] != 0);
        queue.push_back(edge.to);
      }
      edge.to = number[edge.to];
      result.append(static_cast<int32_t>(head), edge);
    }
  }
  return result;
}

Automaton intersect(const Automaton& a, const Automaton& b, size_t max_states) {
  Automaton result;
  if (a.empty() || b.empty()) return result;
  Pairs pairs(max_states);
  pairs.number(a.start, b.start);
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto [p, q] = pairs[i];
    const int32_t from = result.add(a.final[p] != 0 && b.final[q] != 0);
    const std::vector<Edge>& left = a.edges[p];
    const std::vector<Edge>& right = b.edges[q];
    for (size_t l = 0, r = 0; l < left.size() && r < right.size();) {
      const uint8_t low = std::max(left[l].low, right[r].low);
      const uint8_t high = std::min(left[l].high, right[r].high);
      if (low <= high) {
        same_op(left[l], right[r]);
        result.append(from, {low, high, left[l].op, pairs.number(left[l].to, right[r].to)});
      }
      (left[l].high < right[r].high ? l : r)++;
    }
  }
  return trim(result);
}

Automaton subtract(const Automaton& a, const Automaton& b, size_t max_states) {
  if (a.empty() || b.empty()) return trim(a);
  Automaton result;
  Pairs pairs(max_states);
  pairs.number(a.start, b.start);
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto [p, q] = pairs[i];
    const int32_t from = result.add(a.final[p] != 0 && (q < 0 || b.final[q] == 0));
    static const std::vector<Edge> kNone;
    const std::vector<Edge>& right = q < 0 ? kNone : b.edges[q];
    size_t r = 0;
    for (const Edge& edge : a.edges[p]) {
      int low = edge.low;
      while (low <= edge.high) {
        while (r < right.size() && right[r].high < low) ++r;
        if (r == right.size() || right[r].low > edge.high) {
          result.append(from, {static_cast<uint8_t>(low), edge.high, edge.op,
                               pairs.number(edge.to, -1)});
          break;
        }
        if (right[r].low > low) {
          result.append(from, {static_cast<uint8_t>(low), static_cast<uint8_t>(right[r].low - 1),
                               edge.op, pairs.number(edge.to, -1)});
          low = right[r].low;
        }
        same_op(edge, right[r]);
        const uint8_t high = std::min(edge.high, right[r].high);
        result.append(from, {static_cast<uint8_t>(low), high, edge.op,
                             pairs.number(edge.to, right[r].to)});
        low = high + 1;
      }
    }
  }
  return trim(result);
}

namespace {

// One byte of each run of bytes that no edge tells apart, in ascending order.
std::vector<int> run_starts(const Automaton& automaton) {
  std::array<bool, 257> starts{};
  starts[0] = true;
  for (const auto& row : automaton.edges) {
    for (const Edge& edge : row) starts[edge.low] = starts[edge.high + 1] = true;
  }
  std::vector<int> runs;
  for (int byte = 0; byte < 256; ++byte) {
    if (starts[byte]) runs.push_back(byte);
  }
  return runs;
}

uint64_t mixed(uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ x >> 27) * 0x94D049BB133111EBull;
  return x ^ x >> 31;
}

void put(std::string& out, uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xFF));
}

void put_all(std::string& out, const std::vector<uint16_t>& values) {
  size_t at = out.size();
  out.resize(at + 2 * values.size());
  for (const uint16_t value : values) {
    out[at++] = static_cast<char>(value & 0xFF);
    out[at++] = static_cast<char>(value >> 8);
  }
}

}  // namespace

std::string write_table(const Automaton& automaton, std::span<const CounterOp> ops) {
  const size_t n = automaton.size();
  const std::vector<int> runs = run_starts(automaton);
  std::array<int, 256> run_of{};
  for (size_t run = 0; run < runs.size(); ++run) {
    const int end = run + 1 < runs.size() ? runs[run + 1] : 256;
    for (int byte = runs[run]; byte < end; ++byte) run_of[byte] = static_cast<int>(run);
  }
  // Runs with equal columns share a class: two sums of mixed edges name a column.
  struct Column {
    uint64_t a = 0, b = 0;
    bool operator==(const Column&) const = default;
  };
  std::vector<Column> columns(runs.size());
  std::vector<uint16_t> op_number(ops.size() + 1, 0);
  for (size_t state = 0; state < n; ++state) {
    for (const Edge& edge : automaton.edges[state]) {
      op_number[edge.op] = 1;
      const uint64_t key = mixed(static_cast<uint64_t>(state) << 32 ^
                                 static_cast<uint64_t>(edge.to) << 1 ^ uint64_t{edge.op} << 48);
      const uint64_t other = mixed(key + 0x9E3779B97F4A7C15ull);
      for (int run = run_of[edge.low]; run <= run_of[edge.high]; ++run) {
        columns[run].a += key;
        columns[run].b += other;
      }
    }
  }
  std::vector<int> class_of(runs.size());
  std::vector<Column> classes;
  for (size_t run = 0; run < runs.size(); ++run) {
    const auto found = std::find(classes.begin(), classes.end(), columns[run]);
    class_of[run] = static_cast<int>(found - classes.begin());
    if (found == classes.end()) classes.push_back(columns[run]);
  }
  std::string kept;
  uint16_t num_ops = 0;
  for (size_t op = 1; op <= ops.size(); ++op) {
    if (op_number[op] == 0) continue;
    op_number[op] = ++num_ops;
    put(kept, ops[op - 1].counter, 1);
    put(kept, static_cast<uint32_t>(ops[op - 1].kind), 1);
    put(kept, ops[op - 1].limit, 2);
  }
  op_number[0] = 0;
  std::string out = "PMDF";
  for (const size_t field : {size_t{2}, n, classes.size(), size_t{num_ops},
                             static_cast<size_t>(automaton.start)}) {
    put(out, static_cast<uint32_t>(field), 4);
  }
  for (int byte = 0; byte < 256; ++byte) put(out, static_cast<uint32_t>(class_of[run_of[byte]]), 1);
  out += kept;
  out.append(automaton.final.begin(), automaton.final.end());
  std::vector<uint16_t> targets(n * classes.size(), 0xFFFF);
  std::vector<uint16_t> edge_ops(num_ops > 0 ? targets.size() : 0, 0);
  for (size_t state = 0; state < n; ++state) {
    for (const Edge& edge : automaton.edges[state]) {
      for (int run = run_of[edge.low]; run <= run_of[edge.high]; ++run) {
        const size_t cell = state * classes.size() + static_cast<size_t>(class_of[run]);
        targets[cell] = static_cast<uint16_t>(edge.to);
        if (num_ops > 0) edge_ops[cell] = op_number[edge.op];
      }
    }
  }
  out.reserve(out.size() + 2 * (targets.size() + edge_ops.size()));
  put_all(out, targets);
  put_all(out, edge_ops);
  return out;
}

}  // namespace pagemill
