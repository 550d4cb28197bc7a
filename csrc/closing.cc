#include "closing.h"

#include <algorithm>
#include <functional>

#include "json_string.h"

namespace pagemill {

ClosingTable::ClosingTable(std::shared_ptr<const ByteDfa> dfa,
                           std::shared_ptr<const TokenTrie> trie)
    : dfa_(std::move(dfa)),
      trie_(std::move(trie)),
      regions_(*dfa_),
      num_classes_(static_cast<size_t>(dfa_->num_classes())) {
  find_minimums();
  for (int32_t state = 0; state < dfa_->num_states(); ++state) {
    plain_loop_.push_back(find_plain_loop(*dfa_, state).has_value() ? 1 : 0);
  }
  if (!find_situations()) return;
  std::vector<Edge> edges;
  std::vector<size_t> first;
  const bool by_tokens = find_token_edges(edges, first);
  if (!by_tokens) find_byte_edges(edges, first);
  measure(edges, first, !by_tokens);
}

size_t ClosingTable::KeyHash::operator()(const Key& key) const {
  uint64_t hash = static_cast<uint32_t>(key.state);
  for (const uint16_t counter : key.counters) hash = (hash ^ counter) * 0x9E3779B97F4A7C15ull;
  return hash ^ hash >> 29;
}

// Per state and counter, the largest minimum that the counter is held against before it is reset.
// For each counter the largest goes first, backwards over the edges to where nothing larger went.
void ClosingTable::find_minimums() {
  const size_t n = static_cast<size_t>(dfa_->num_states());
  minimums_.assign(n, {});
  if (!dfa_->has_counters()) return;
  struct Source {
    int32_t from;
    const CounterOp* op;
    bool operator==(const Source&) const = default;
  };
  std::vector<std::vector<Source>> into(n);
  struct Seed {
    int32_t state;
    uint16_t limit;
  };
  std::array<std::vector<Seed>, kMaxCounters> seeds;
  const auto closes = [](const CounterOp* op) {
    return op != nullptr && op->kind == CounterOp::Kind::kClose;
  };
  for (int32_t state = 0; state < dfa_->num_states(); ++state) {
    dfa_->for_each_edge(state, [&](uint8_t, int32_t to, const CounterOp* op) {
      const Source source{state, op};
      if (!into[to].empty() && into[to].back() == source) return;
      into[to].push_back(source);
      if (closes(op) && op->limit > 0) seeds[op->counter].push_back({state, op->limit});
    });
  }
  std::vector<int32_t> pending;
  for (int counter = 0; counter < kMaxCounters; ++counter) {
    std::ranges::stable_sort(seeds[counter], std::greater<>{}, &Seed::limit);
    for (const Seed& seed : seeds[counter]) {
      const auto reach = [&](int32_t state) {
        if (minimums_[state][counter] != 0) return;
        minimums_[state][counter] = seed.limit;
        pending.push_back(state);
      };
      reach(seed.state);
      while (!pending.empty()) {
        const int32_t to = pending.back();
        pending.pop_back();
        for (const Source& source : into[to]) {
          if (!(closes(source.op) && source.op->counter == counter)) reach(source.from);
        }
      }
    }
  }
}

ClosingTable::Key ClosingTable::key_of(const RowState& row) const {
  Key key{row.state, row.counters};
  for (int i = 0; i < kMaxCounters; ++i) {
    key.counters[i] = std::min(key.counters[i], minimums_[row.state][i]);
  }
  return key;
}

int32_t ClosingTable::situation(const RowState& row) const {
  const auto found = index_.find(key_of(row));
  return found == index_.end() ? -1 : found->second;
}

// Per counter, the largest limit under which the state's edges count. Where a pattern stands beside
// a length, limits leave room for the characters that are still missing: a row that has come here
// can count under the largest, but perhaps under no other. Situations don't tell, since they cut
// counters, so ways to the end take only such edges.
std::array<int32_t, kMaxCounters> ClosingTable::roomiest_count(int32_t state) const {
  std::array<int32_t, kMaxCounters> limits{};
  dfa_->for_each_edge(state, [&](uint8_t, int32_t, const CounterOp* op) {
    if (op == nullptr || op->kind != CounterOp::Kind::kCount) return;
    limits[op->counter] = std::max<int32_t>(limits[op->counter], op->limit);
  });
  return limits;
}

bool ClosingTable::find_situations() {
  std::vector<int> byte_of(num_classes_, -1);
  for (int byte = 0; byte < 256; ++byte) byte_of[dfa_->byte_class(static_cast<uint8_t>(byte))] = byte;
  std::vector<Key> keys;
  const auto number_of = [&](const Key& key) {
    const auto [place, added] = index_.emplace(key, static_cast<int32_t>(keys.size()));
    if (added) {
      keys.push_back(key);
      state_of_.push_back(key.state);
    }
    return place->second;
  };
  RowState start;
  start.state = dfa_->start();
  number_of(key_of(start));
  for (size_t from = 0; from < keys.size(); ++from) {
    if (keys.size() > static_cast<size_t>(kMaxSituations)) return false;
    RowState row;
    row.state = keys[from].state;
    row.counters = keys[from].counters;
    const auto roomiest = roomiest_count(row.state);
    for (const int byte : byte_of) {
      RowState moved = row;
      const bool legal = byte >= 0 && dfa_->step(moved, static_cast<uint8_t>(byte));
      const int32_t to = legal ? number_of(key_of(moved)) : -1;
      const CounterOp* op = legal ? dfa_->edge(row.state, static_cast<uint8_t>(byte)).op : nullptr;
      const bool sure = op == nullptr || op->kind != CounterOp::Kind::kCount ||
                        op->limit == roomiest[op->counter];
      next_.push_back(sure ? to : -1);
    }
  }
  return true;
}

bool ClosingTable::leaves(int32_t to, uint8_t byte, Region region) const {
  if (region == Region::kString) return !regions_.in_string(state_of_[to]);
  return region == Region::kNumber && !is_number_byte(byte);
}

template <typename Visit>
int64_t ClosingTable::walk(const PreorderTrie& tokens, int32_t from, Region region,
                           Visit visit) const {
  struct Place {
    int32_t at;
    bool left;
  };
  std::vector<Place> stack(trie_->max_depth() + 1);
  stack[0] = {from, false};
  const auto nodes = tokens.nodes();
  int64_t seen = 0;
  for (size_t i = 0; i < nodes.size(); ++seen) {
    const PreorderTrie::Node& node = nodes[i];
    const Place& before = stack[node.depth];
    const int32_t to = next(before.at, node.byte);
    if (to < 0) {
      i += node.subtree;
      continue;
    }
    stack[node.depth + 1] = {to, before.left || leaves(to, node.byte, region)};
    if (const auto ids = tokens.ids_of(i); !ids.empty()) {
      visit(to, stack[node.depth + 1].left, ids);
    }
    ++i;
  }
  return seen;
}

int32_t ClosingTable::after_characters(int32_t situation, int32_t count) const {
  for (; count > 0 && situation >= 0; --count) situation = next(situation, ' ');
  return situation;
}

// The distinct edges of each situation, one for all tokens between the same two.
bool ClosingTable::find_token_edges(std::vector<Edge>& edges, std::vector<size_t>& first) const {
  const int32_t n = static_cast<int32_t>(state_of_.size());
  std::vector<int32_t> lengths;  // in characters, of plain tokens
  for (int32_t length = 1; length <= trie_->max_characters(); ++length) {
    if (!std::ranges::equal(trie_->plain(length), trie_->plain(length - 1))) {
      lengths.push_back(length);
    }
  }
  std::vector<int32_t> known_by[2] = {std::vector<int32_t>(n, -1), std::vector<int32_t>(n, -1)};
  int64_t work = 0;
  first.assign(1, 0);
  for (int32_t from = 0; from < n; ++from) {
    const auto add = [&](int32_t to, bool left) {
      if (known_by[left][to] == from) return;
      known_by[left][to] = from;
      edges.push_back({to, left});
    };
    const bool inside = regions_.in_string(state_of_[from]);
    const bool plain = plain_loop_[state_of_[from]] != 0;
    if (plain) {
      for (const int32_t length : lengths) {
        if (const int32_t to = after_characters(from, length); to >= 0) add(to, false);
      }
    }
    work += walk(plain ? trie_->rest() : trie_->all(), from,
                 inside ? Region::kString : Region::kNumber,
                 [&](int32_t to, bool left, std::span<const int32_t>) { add(to, left); });
    if (work > kMaxWalk || edges.size() > kMaxEdges) return false;
    first.push_back(edges.size());
  }
  return true;
}

void ClosingTable::find_byte_edges(std::vector<Edge>& edges, std::vector<size_t>& first) const {
  edges.clear();
  first.assign(1, 0);
  std::vector<uint8_t> bytes;
  const auto nodes = trie_->all().nodes();
  for (size_t i = 0; i < nodes.size(); i += nodes[i].subtree) {
    if (!trie_->all().ids_of(i).empty()) bytes.push_back(nodes[i].byte);
  }
  for (size_t from = 0; from < state_of_.size(); ++from) {
    const int32_t situation = static_cast<int32_t>(from);
    const bool inside = regions_.in_string(state_of_[from]);
    for (const uint8_t byte : bytes) {
      const int32_t to = next(situation, byte);
      if (to < 0) continue;
      const Region region = inside ? Region::kString : Region::kNumber;
      edges.push_back({to, leaves(to, byte, region)});
    }
    first.push_back(edges.size());
  }
}

void ClosingTable::measure(const std::vector<Edge>& edges, const std::vector<size_t>& first,
                           bool by_bytes) {
  const size_t n = state_of_.size();
  std::vector<size_t> into_first(n + 1, 0);
  for (const Edge& edge : edges) ++into_first[edge.to + 1];
  for (size_t i = 0; i < n; ++i) into_first[i + 1] += into_first[i];
  struct Source {
    int32_t from;
    bool leaves;
  };
  std::vector<Source> sources(edges.size());
  std::vector<size_t> fill(into_first.begin(), into_first.end() - 1);
  for (size_t from = 0; from < n; ++from) {
    for (size_t e = first[from]; e < first[from + 1]; ++e) {
      sources[fill[edges[e].to]++] = {static_cast<int32_t>(from), edges[e].leaves};
    }
  }
  // Breadth first, backwards, from situations whose distance is set.
  const auto spread = [&](std::vector<int32_t>& distance, bool staying) {
    std::vector<int32_t> queue;
    for (size_t i = 0; i < n; ++i) {
      if (distance[i] != kNever) queue.push_back(static_cast<int32_t>(i));
    }
    for (size_t head = 0; head < queue.size(); ++head) {
      const int32_t to = queue[head];
      for (size_t s = into_first[to]; s < into_first[to + 1]; ++s) {
        const Source& source = sources[s];
        if ((staying && source.leaves) || distance[source.from] != kNever) continue;
        distance[source.from] = distance[to] + 1;
        queue.push_back(source.from);
      }
    }
  };
  to_end_.assign(n, kNever);
  to_leave_.assign(n, kNever);
  for (size_t i = 0; i < n; ++i) {
    const bool final = dfa_->is_final(state_of_[i]);
    if (final) to_end_[i] = 0;
    bool out = final;
    for (size_t e = first[i]; e < first[i + 1]; ++e) out = out || edges[e].leaves;
    if (out) to_leave_[i] = 1;
  }
  spread(to_end_, false);
  spread(to_leave_, true);
  farthest_after_.assign(n, 0);
  for (size_t i = 0; i < n; ++i) {
    for (size_t e = first[i]; e < first[i + 1]; ++e) {
      farthest_after_[i] = std::max(farthest_after_[i], to_end_[edges[e].to]);
    }
    farthest_ = std::max(farthest_, farthest_after_[i]);
  }
  // Tokens of several bytes may lead anywhere.
  if (by_bytes) std::fill(farthest_after_.begin(), farthest_after_.end(), farthest_);
}

void ClosingTable::fit(int32_t situation, int32_t most, Region region,
                       std::span<int32_t> bits) const {
  const auto fits = [&](int32_t to, bool left) {
    if (to < 0 || to_end_[to] > most) return false;
    return region == Region::kNone || left || to_leave_[to] < to_leave_[situation];
  };
  const bool plain = plain_loop_[state_of_[situation]] != 0;
  if (plain) {
    int32_t at = situation;
    for (int32_t length = 1; length <= trie_->max_characters(); ++length) {
      at = at < 0 ? at : next(at, ' ');
      if (!fits(at, false)) continue;
      const auto upto = trie_->plain(length);
      const auto shorter = trie_->plain(length - 1);
      for (size_t i = 0; i < upto.size(); ++i) bits[i] |= upto[i] & ~shorter[i];
    }
  }
  const auto set = [&](int32_t id) {
    bits[id >> 5] =
        static_cast<int32_t>(static_cast<uint32_t>(bits[id >> 5]) | uint32_t{1} << (id & 31));
  };
  walk(plain ? trie_->rest() : trie_->all(), situation, region,
       [&](int32_t to, bool left, std::span<const int32_t> ids) {
         if (!fits(to, left)) return;
         for (const int32_t id : ids) set(id);
       });
  if (!dfa_->is_final(state_of_[situation])) return;
  for (const int32_t id : trie_->eos_ids()) set(id);
}

}  // namespace pagemill
