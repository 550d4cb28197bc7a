// Minimisation of partial automata by refining a partition of the states: those whose edges lead
// into parts that were renumbered are compared again, and of a part that splits the largest piece
// keeps its number (Hopcroft's "smaller half"), so that a state is renumbered O(log n) times.
//
// The first partition is by what names the states' languages (fingerprint.h), so that mostly
// nothing is left to refine: parts of several states are compared all the same. Where those names
// can't be had, it is by the shortest word to an end, the first of these by bytes.
#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "automaton.h"
#include "fingerprint.h"
#include "number_map.h"

namespace pagemill {
namespace {

using Edge = Automaton::Edge;

// A partition of 0 .. n-1 that is refined by marking elements and splitting the sets they are in.
class Partition {
 public:
  // Elements of one colour are a set; colours are 0, 1, 2 and so on.
  Partition(std::vector<int32_t> colours, int32_t num_colours)
      : elements_(colours.size()), place_(colours.size()), set_of_(std::move(colours)) {
    sets_.resize(num_colours);
    for (const int32_t colour : set_of_) ++sets_[colour].last;
    int32_t first = 0;
    for (Set& set : sets_) {
      set.first = first;
      first += set.last;
      set.last = set.first;
    }
    for (size_t element = 0; element < set_of_.size(); ++element) {
      Set& set = sets_[set_of_[element]];
      place_[element] = set.last;
      elements_[set.last++] = static_cast<int32_t>(element);
    }
  }

  int32_t set_of(int32_t element) const { return set_of_[element]; }
  bool is_alone(int32_t element) const {
    const Set& set = sets_[set_of_[element]];
    return set.last - set.first == 1;
  }

  void mark(int32_t element) {
    Set& set = sets_[set_of_[element]];
    const int32_t at = place_[element];
    const int32_t to = set.first + set.marked;
    if (at < to) return;
    ++set.marked;
    std::swap(elements_[at], elements_[to]);
    place_[elements_[at]] = at;
    place_[elements_[to]] = to;
  }

  // Splits a set into its marked and other elements; returns those of the smaller part, which is
  // a set of its own from now on. Empty if all were marked.
  std::span<const int32_t> split(int32_t index) {
    Set& set = sets_[index];
    const int32_t middle = set.first + set.marked;
    set.marked = 0;
    if (middle == set.last) return {};
    Set added{set.first, middle, 0};
    if (middle - set.first <= set.last - middle) {
      set.first = middle;
    } else {
      added = {middle, set.last, 0};
      set.last = middle;
    }
    sets_.push_back(added);
    const std::span moved(elements_.begin() + added.first, elements_.begin() + added.last);
    for (const int32_t element : moved) set_of_[element] = static_cast<int32_t>(sets_.size()) - 1;
    return moved;
  }

 private:
  struct Set {
    int32_t first = 0, last = 0;
    int32_t marked = 0;  // they stand at its beginning
  };
  std::vector<int32_t> elements_, place_, set_of_;
  std::vector<Set> sets_;
};

// The states with an edge into each state.
struct Sources {
  explicit Sources(const Automaton& automaton) : first(automaton.size() + 1, 0) {
    for (const auto& row : automaton.edges) {
      for (const Edge& edge : row) ++first[edge.to + 1];
    }
    for (size_t i = 1; i < first.size(); ++i) first[i] += first[i - 1];
    list.resize(first.back());
    std::vector<int32_t> fill(first.begin(), first.end() - 1);
    for (size_t from = 0; from < automaton.size(); ++from) {
      for (const Edge& edge : automaton.edges[from]) {
        list[fill[edge.to]++] = static_cast<int32_t>(from);
      }
    }
  }
  std::span<const int32_t> operator[](int32_t state) const {
    return {list.begin() + first[state], list.begin() + first[state + 1]};
  }
  std::vector<int32_t> first, list;
};

class Minimiser {
 public:
  explicit Minimiser(const Automaton& automaton)
      : automaton_(automaton), sources_(automaton), parts_(first_parts()) {}

  Automaton minimal() {
    if (automaton_.empty() || alive_[automaton_.start] == 0) return {};
    refine();
    return merged();
  }

 private:
  Partition first_parts() {
    std::vector<uint64_t> names = first_words();
    if (const auto better = fingerprints(automaton_); !better.empty()) names = better;
    NumberMap colours;
    int32_t num_colours = 0;
    std::vector<int32_t> colour_of(names.size());
    for (size_t state = 0; state < names.size(); ++state) {
      const auto [colour, added] = colours.emplace(names[state], num_colours);
      num_colours += added ? 1 : 0;
      colour_of[state] = colour;
    }
    return {std::move(colour_of), num_colours};
  }

  // A hash of each state's word; finds the states that are alive on the way.
  std::vector<uint64_t> first_words() {
    constexpr uint64_t kEmptyWord = 1;
    const size_t n = automaton_.size();
    alive_.assign(n, 0);
    std::vector<int32_t> distance(n, -1), queue;
    queue.reserve(n);
    for (size_t state = 0; state < n; ++state) {
      if (automaton_.final[state] == 0) continue;
      distance[state] = 0;
      queue.push_back(static_cast<int32_t>(state));
    }
    std::vector<uint64_t> word(n, 0);
    for (size_t head = 0; head < queue.size(); ++head) {
      const int32_t state = queue[head];
      alive_[state] = 1;
      word[state] = kEmptyWord;
      if (distance[state] > 0) {
        const auto& row = automaton_.edges[state];
        const Edge& edge = *std::find_if(row.begin(), row.end(), [&](const Edge& way) {
          return distance[way.to] >= 0 && distance[way.to] < distance[state];
        });
        word[state] = mixed(word[edge.to] ^ uint64_t{edge.low} << 56 ^ uint64_t{edge.op} << 40);
      }
      for (const int32_t from : sources_[state]) {
        if (distance[from] >= 0) continue;
        distance[from] = distance[state] + 1;
        queue.push_back(from);
      }
    }
    return word;
  }

  static uint64_t mixed(uint64_t value) {
    value *= 0x9E3779B97F4A7C15ull;
    return (value ^ value >> 29) * 0xBF58476D1CE4E5B9ull;
  }

  // Calls visit(edge) for what a state does as parts see it: `to` is a part, edges are joined.
  template <typename Visit>
  void for_each_way(int32_t state, Visit visit) const {
    Edge open{1, 0, 0, -1};
    for (const Edge& edge : automaton_.edges[state]) {
      if (alive_[edge.to] == 0) continue;
      const int32_t part = parts_.set_of(edge.to);
      if (open.to == part && open.op == edge.op && open.high + 1 == edge.low) {
        open.high = edge.high;
        continue;
      }
      if (open.to >= 0) visit(open);
      open = {edge.low, edge.high, edge.op, part};
    }
    if (open.to >= 0) visit(open);
  }

  uint64_t hash_of(int32_t state) const {
    uint64_t hash = (static_cast<uint64_t>(parts_.set_of(state)) << 1 | automaton_.final[state]) *
                    0xBF58476D1CE4E5B9ull;
    hash ^= hash >> 31;
    for_each_way(state, [&hash](const Edge& edge) {
      hash = (hash ^ uint64_t{edge.low} << 56 ^ uint64_t{edge.high} << 48 ^
              uint64_t{edge.op} << 32 ^ static_cast<uint32_t>(edge.to)) *
             0x9E3779B97F4A7C15ull;
      hash ^= hash >> 29;
    });
    return hash;
  }

  void ways_of(int32_t state, std::vector<Edge>& ways) const {
    ways.clear();
    for_each_way(state, [&ways](const Edge& edge) { ways.push_back(edge); });
  }

  struct Compared {
    uint64_t hash;  // of the part as well
    int32_t state;
    int32_t group = 0;
    friend bool operator<(const Compared& a, const Compared& b) { return a.hash < b.hash; }
  };

  bool same(int32_t a, int32_t b) {
    if (parts_.set_of(a) != parts_.set_of(b) || automaton_.final[a] != automaton_.final[b]) {
      return false;
    }
    ways_of(a, left_);
    ways_of(b, right_);
    return left_ == right_;
  }

  // Numbers the groups of states of one part that do the same. States with the same hash are
  // compared; a stranger among them would be a group of its own, which is right if not minimal.
  void group(std::vector<Compared>& compared) {
    std::sort(compared.begin(), compared.end());
    int32_t number = 0;
    for (size_t i = 1; i < compared.size(); ++i) {
      if (compared[i].hash != compared[i - 1].hash ||
          !same(compared[i].state, compared[i - 1].state)) {
        ++number;
      }
      compared[i].group = number;
    }
  }

  void refine() {
    const size_t n = automaton_.size();
    std::vector<int32_t> dirty;
    std::vector<int32_t> noted(n, -1);  // the round that last found a state dirty
    for (size_t state = 0; state < n; ++state) {
      if (!parts_.is_alone(static_cast<int32_t>(state))) {
        dirty.push_back(static_cast<int32_t>(state));
      }
    }
    std::vector<Compared> compared;
    std::vector<int32_t> changed;
    for (int32_t round = 0; !dirty.empty(); ++round) {
      // All of a round see the same numbers. Those of a part that aren't dirty still do the same
      // as each other, and differ from the dirty ones, which go to a number that is new.
      compared.clear();
      for (const int32_t state : dirty) {
        compared.push_back({hash_of(state), state});
      }
      group(compared);
      changed.clear();
      for (size_t i = 0; i < compared.size();) {
        const int32_t group = compared[i].group;
        const int32_t part = parts_.set_of(compared[i].state);
        for (; i < compared.size() && compared[i].group == group; ++i) {
          parts_.mark(compared[i].state);
        }
        const auto moved = parts_.split(part);
        changed.insert(changed.end(), moved.begin(), moved.end());
      }
      dirty.clear();
      for (const int32_t to : changed) {
        if (alive_[to] == 0) continue;  // no edge into it counts
        for (const int32_t from : sources_[to]) {
          if (noted[from] == round || parts_.is_alone(from)) continue;
          noted[from] = round;
          dirty.push_back(from);
        }
      }
    }
  }

  // One state for each part in reach, in order of first visit.
  Automaton merged() const {
    Automaton result;
    result.edges.reserve(automaton_.size());
    result.final.reserve(automaton_.size());
    std::vector<int32_t> number(automaton_.size(), -1);  // by part
    std::vector<int32_t> queue;
    const auto visit = [&](int32_t state) {
      int32_t& known = number[parts_.set_of(state)];
      if (known < 0) {
        known = result.add(automaton_.final[state] != 0);
        queue.push_back(state);
      }
      return known;
    };
    visit(automaton_.start);
    for (size_t head = 0; head < queue.size(); ++head) {
      const auto& row = automaton_.edges[queue[head]];
      const auto from = static_cast<int32_t>(head);
      result.edges[from].reserve(row.size());
      for (Edge edge : row) {
        if (alive_[edge.to] == 0) continue;
        edge.to = visit(edge.to);
        result.append(from, edge);
      }
    }
    return result;
  }

  const Automaton& automaton_;
  const Sources sources_;
  std::vector<uint8_t> alive_;
  Partition parts_;
  std::vector<Edge> left_, right_;
};

}  // namespace

Automaton minimise(const Automaton& automaton) { return Minimiser(automaton).minimal(); }

}  // namespace pagemill
