// Minimisation of partial automata in O(m log n) for m edges of single letters: Valmari, "Fast
// brief practical DFA minimization", Information Processing Letters 112 (2012).
#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "automaton.h"

namespace pagemill {
namespace {

using Edge = Automaton::Edge;

// A partition of 0 .. n-1 that is refined by marking elements and splitting the sets they are in.
class Partition {
 public:
  explicit Partition(int32_t n) : elements_(n), place_(n), set_of_(n, 0), marked_(n + 1, 0) {
    std::iota(elements_.begin(), elements_.end(), 0);
    std::iota(place_.begin(), place_.end(), 0);
    if (n > 0) bounds_.push_back({0, n});
  }

  int32_t size() const { return static_cast<int32_t>(bounds_.size()); }
  int32_t set_of(int32_t element) const { return set_of_[element]; }
  std::span<const int32_t> set(int32_t index) const {
    return std::span(elements_).subspan(bounds_[index].first,
                                        bounds_[index].last - bounds_[index].first);
  }

  void mark(int32_t element) {
    const int32_t set = set_of_[element];
    const int32_t at = place_[element];
    const int32_t to = bounds_[set].first + marked_[set];
    if (at < to) return;
    std::swap(elements_[at], elements_[to]);
    place_[elements_[at]] = at;
    place_[elements_[to]] = to;
    if (marked_[set]++ == 0) touched_.push_back(set);
  }

  // Splits each touched set into its marked and other elements; the smaller part is the new set.
  void split() {
    for (const int32_t set : touched_) {
      const int32_t first = bounds_[set].first;
      const int32_t last = bounds_[set].last;
      const int32_t middle = first + marked_[set];
      marked_[set] = 0;
      if (middle == last) continue;
      const int32_t added = size();
      if (middle - first <= last - middle) {
        bounds_.push_back({first, middle});
        bounds_[set].first = middle;
      } else {
        bounds_.push_back({middle, last});
        bounds_[set].last = middle;
      }
      for (const int32_t element : this->set(added)) set_of_[element] = added;
    }
    touched_.clear();
  }

 private:
  struct Bounds {
    int32_t first, last;
  };
  std::vector<int32_t> elements_, place_, set_of_, marked_, touched_;
  std::vector<Bounds> bounds_;
};

// States with edges on the same bytes under the same operations; no others can be equal.
struct Domain {
  std::vector<int32_t> states;
  std::array<bool, 257> starts{};  // bytes where an edge of some state begins, or ends before
};

std::vector<Domain> domains_of(const Automaton& automaton) {
  std::vector<Domain> domains;
  std::unordered_map<std::string, size_t> numbers;
  std::string key;
  for (size_t state = 0; state < automaton.size(); ++state) {
    key.assign(1, static_cast<char>(automaton.final[state]));
    int end = -1;
    uint16_t op = 0;
    for (const Edge& edge : automaton.edges[state]) {
      if (edge.low == end && edge.op == op) {
        key[key.size() - 3] = static_cast<char>(edge.high);
      } else {
        for (const int part : {int{edge.low}, int{edge.high}, edge.op & 0xFF, edge.op >> 8}) {
          key.push_back(static_cast<char>(part));
        }
      }
      end = edge.high + 1;
      op = edge.op;
    }
    const auto [known, added] = numbers.try_emplace(key, domains.size());
    if (added) domains.emplace_back();
    Domain& domain = domains[known->second];
    domain.states.push_back(static_cast<int32_t>(state));
    for (const Edge& edge : automaton.edges[state]) {
      domain.starts[edge.low] = domain.starts[edge.high + 1] = true;
    }
  }
  return domains;
}

struct Transitions {
  std::vector<int32_t> tail, head;
  std::vector<uint32_t> letter;
};

// One transition for each letter: a domain's run of bytes that none of its states tells apart.
Transitions by_letter(const Automaton& automaton, const std::vector<Domain>& domains) {
  Transitions all;
  for (size_t number = 0; number < domains.size(); ++number) {
    for (const int32_t from : domains[number].states) {
      for (const Edge& edge : automaton.edges[from]) {
        for (uint32_t byte = edge.low; byte <= edge.high; ++byte) {
          if (!domains[number].starts[byte]) continue;
          all.tail.push_back(from);
          all.head.push_back(edge.to);
          all.letter.push_back(static_cast<uint32_t>(number) << 8 | byte);
        }
      }
    }
  }
  return all;
}

}  // namespace

Automaton minimise(const Automaton& given) {
  const Automaton automaton = trim(given);
  const int32_t n = static_cast<int32_t>(automaton.size());
  if (n <= 1) return automaton;
  const std::vector<Domain> domains = domains_of(automaton);
  const Transitions all = by_letter(automaton, domains);
  const int32_t m = static_cast<int32_t>(all.tail.size());

  Partition blocks(n);
  for (const Domain& domain : domains) {
    for (const int32_t state : domain.states) blocks.mark(state);
    blocks.split();
  }

  Partition cords(m);
  std::vector<int32_t> order(m);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int32_t i) { return all.letter[i]; });
  for (int32_t i = 0; i < m; ++i) {
    cords.mark(order[i]);
    if (i + 1 == m || all.letter[order[i]] != all.letter[order[i + 1]]) cords.split();
  }

  std::vector<int32_t> into_first(n + 1, 0);
  for (const int32_t head : all.head) ++into_first[head + 1];
  for (int32_t i = 0; i < n; ++i) into_first[i + 1] += into_first[i];
  std::vector<int32_t> into(m);
  std::vector<int32_t> fill(into_first.begin(), into_first.end() - 1);
  for (int32_t i = 0; i < m; ++i) into[fill[all.head[i]]++] = i;

  int32_t block = 1;
  for (int32_t cord = 0; cord < cords.size(); ++cord) {
    for (const int32_t i : cords.set(cord)) blocks.mark(all.tail[i]);
    blocks.split();
    for (; block < blocks.size(); ++block) {
      for (const int32_t state : blocks.set(block)) {
        for (int32_t i = into_first[state]; i < into_first[state + 1]; ++i) cords.mark(into[i]);
      }
      cords.split();
    }
  }

  Automaton merged;
  for (int32_t set = 0; set < blocks.size(); ++set) {
    merged.add(automaton.final[blocks.set(set).front()] != 0);
  }
  for (int32_t set = 0; set < blocks.size(); ++set) {
    for (Edge edge : automaton.edges[blocks.set(set).front()]) {
      edge.to = blocks.set_of(edge.to);
      merged.append(set, edge);
    }
  }
  merged.start = blocks.set_of(automaton.start);
  return trim(merged);
}

}  // namespace pagemill
