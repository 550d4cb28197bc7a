#include "grammar.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "json_string.h"

namespace pagemill {

Grammar::Grammar(std::shared_ptr<const ByteDfa> dfa, std::shared_ptr<const TokenTrie> trie,
                 const BpeEncoder* encoder)
    : dfa_(std::move(dfa)),
      trie_(std::move(trie)),
      pool_(trie_->num_words()),
      scratch_(trie_->num_words()),
      states_(trie_->max_depth() + 1),
      rows_(trie_->max_depth() + 1) {
  for (Known& known : known_) known.by_state.assign(dfa_->num_states(), -1);
  if (encoder != nullptr) forced_.emplace(*dfa_, *trie_, *encoder);
  find_limits_in_reach();
}

RowState Grammar::start(const PageSpans* page) const {
  RowState row;
  row.page = page;
  row.state = dfa_->start();
  return row;
}

void Grammar::check(const RowState& row) const {
  if (row.state < 0 || row.state >= dfa_->num_states()) {
    throw std::invalid_argument("state " + std::to_string(row.state) + " of an automaton of " +
                                std::to_string(dfa_->num_states()));
  }
}

bool Grammar::advance(RowState& row, int32_t token) const {
  const std::string& bytes = trie_->bytes(token);
  if (bytes.empty()) return false;
  RowState moved = row;
  for (const char byte : bytes) {
    if (!dfa_->step(moved, static_cast<uint8_t>(byte))) return false;
  }
  row = moved;
  return true;
}

int32_t Grammar::num_masks() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return pool_.size();
}

size_t Grammar::KeyHash::operator()(const RowState& row) const {
  uint64_t hash = static_cast<uint32_t>(row.state);
  for (const uint16_t counter : row.counters) hash = (hash ^ counter) * 0x9E3779B97F4A7C15ull;
  return hash ^ hash >> 29;
}

int32_t Grammar::mask_id(const RowState& row, Split split) {
  if (pool_.size() >= kMaxMasks) {
    pool_ = MaskPool(trie_->num_words());
    for (Known& kind : known_) {
      std::fill(kind.by_state.begin(), kind.by_state.end(), -1);
      kind.by_situation.clear();
    }
  }
  Known& kind = known_[static_cast<size_t>(split)];
  if (near_first_[row.state] == near_first_[row.state + 1]) {
    int32_t& mask = kind.by_state[row.state];
    if (mask < 0) {
      compute(row, split);
      mask = pool_.intern(scratch_);
    }
    return mask;
  }
  const RowState key = canonical(row);
  if (const auto known = kind.by_situation.find(key); known != kind.by_situation.end()) {
    return known->second;
  }
  compute(key, split);
  const int32_t mask = pool_.intern(scratch_);
  if (kind.by_situation.size() >= 16 * static_cast<size_t>(kMaxMasks)) kind.by_situation.clear();
  kind.by_situation.emplace(key, mask);
  return mask;
}

const Grammar::PageMask& Grammar::page_mask(const RowState& row, Split split) {
  const uint64_t page = row.page->number();
  for (const PageMask& mask : page_masks_) {
    if (mask.page == page && mask.split == split && mask.row == row) return mask;
  }
  if (page_masks_.size() < kPageMasks) page_masks_.emplace_back();
  PageMask& mask = page_masks_[next_page_mask_];
  next_page_mask_ = (next_page_mask_ + 1) % kPageMasks;
  compute(row, split);
  mask.popcount = list_ids();
  mask.row = row;
  mask.page = page;
  mask.split = split;
  mask.bits.assign(scratch_.begin(), scratch_.end());
  mask.ids.assign(ids_.begin(), ids_.end());
  return mask;
}

void Grammar::set(int32_t id) {
  int32_t& word = scratch_[id >> 5];
  word = static_cast<int32_t>(static_cast<uint32_t>(word) | uint32_t{1} << (id & 31));
}

void Grammar::compute(const RowState& row, Split split) {
  const bool in_span = row.span.is_open();
  if (const auto loop = in_span ? std::nullopt : find_plain_loop(*dfa_, row.state)) {
    // In a string: plain tokens are legal if short enough, only the others are walked.
    int32_t room = trie_->max_depth();
    if (loop->op != nullptr) room = loop->op->limit - row.counters[loop->op->counter];
    const auto plain = trie_->plain(room);
    std::copy(plain.begin(), plain.end(), scratch_.begin());
    walk(trie_->rest(), row);
  } else {
    std::fill(scratch_.begin(), scratch_.end(), 0);
    walk(trie_->all(), row);
  }
  if (split == Split::kOwn && forced_) forced_->restrict(*dfa_, *trie_, row.state, scratch_);
  if (!dfa_->is_final(row.state)) return;
  for (const int32_t id : trie_->eos_ids()) set(id);
}

int32_t Grammar::list_ids() {
  int32_t popcount = 0;
  for (const int32_t word : scratch_) popcount += std::popcount(static_cast<uint32_t>(word));
  ids_.clear();
  if (popcount > MaskPool::kSparseLimit) return popcount;
  for (size_t w = 0; w < scratch_.size(); ++w) {
    for (uint32_t word = static_cast<uint32_t>(scratch_[w]); word != 0; word &= word - 1) {
      ids_.push_back(static_cast<int32_t>(w) * 32 + std::countr_zero(word));
    }
  }
  return popcount;
}

void Grammar::walk(const PreorderTrie& tokens, const RowState& row) {
  if (!row.span.is_open() && near_first_[row.state] == near_first_[row.state + 1]) {
    walk_plain(tokens, row.state);
  } else {
    walk_counted(tokens, row);
  }
}

void Grammar::walk_plain(const PreorderTrie& tokens, int32_t state) {
  const auto nodes = tokens.nodes();
  states_[0] = state;
  for (size_t i = 0; i < nodes.size();) {
    const PreorderTrie::Node& node = nodes[i];
    const int32_t to = dfa_->next_unchecked(states_[node.depth], node.byte);
    if (to == ByteDfa::kDead) {
      i += node.subtree;
      continue;
    }
    states_[node.depth + 1] = to;
    for (const int32_t id : tokens.ids_of(i)) set(id);
    ++i;
  }
}

void Grammar::walk_counted(const PreorderTrie& tokens, const RowState& row) {
  const auto nodes = tokens.nodes();
  rows_[0] = row;
  for (size_t i = 0; i < nodes.size();) {
    const PreorderTrie::Node& node = nodes[i];
    RowState& to = rows_[node.depth + 1];
    to = rows_[node.depth];
    if (!dfa_->step(to, node.byte)) {
      i += node.subtree;
      continue;
    }
    for (const int32_t id : tokens.ids_of(i)) set(id);
    ++i;
  }
}

void Grammar::find_limits_in_reach() {
  const int32_t n = dfa_->num_states();
  const auto ops = dfa_->ops();
  near_first_.assign(n + 1, 0);
  near_enter_.assign(n, 0);
  if (ops.empty()) return;
  // A marked operation has an edge within `depth` bytes. One pass per byte of the longest token,
  // over bit sets of operations, until nothing changes.
  const size_t words = (ops.size() + 63) / 64;
  std::vector<uint64_t> reach(n * words, 0);
  std::vector<uint32_t> edge_first(n + 1, 0);
  std::vector<int32_t> targets;
  for (int32_t state = 0; state < n; ++state) {
    const size_t begin = targets.size();
    dfa_->for_each_edge(state, [&](uint8_t, int32_t to, const CounterOp* op) {
      if (op != nullptr) {
        const size_t index = static_cast<size_t>(op - ops.data());
        reach[state * words + index / 64] |= uint64_t{1} << (index % 64);
      }
      if (std::find(targets.begin() + begin, targets.end(), to) == targets.end()) {
        targets.push_back(to);
      }
    });
    edge_first[state + 1] = static_cast<uint32_t>(targets.size());
  }
  std::vector<uint64_t> before;
  for (int32_t depth = 1; depth < trie_->max_depth(); ++depth) {
    before = reach;
    for (int32_t state = 0; state < n; ++state) {
      for (uint32_t e = edge_first[state]; e < edge_first[state + 1]; ++e) {
        for (size_t w = 0; w < words; ++w) {
          reach[state * words + w] |= before[targets[e] * words + w];
        }
      }
    }
    if (reach == before) break;
  }
  for (int32_t state = 0; state < n; ++state) {
    for (size_t index = 0; index < ops.size(); ++index) {
      if ((reach[state * words + index / 64] >> (index % 64) & 1) != 0) {
        near_.push_back(ops[index]);
        if (ops[index].kind == CounterOp::Kind::kEnter) near_enter_[state] = 1;
      }
    }
    near_first_[state + 1] = static_cast<uint32_t>(near_.size());
  }
}

RowState Grammar::canonical(const RowState& row) const {
  // A token counts at most max_depth times, so a counter matters only where it lies at most that
  // far below a limit in reach; elsewhere the smallest value of the same gap stands for it.
  RowState key;
  key.state = row.state;
  const int32_t reach = trie_->max_depth();
  for (int counter = 0; counter < kMaxCounters; ++counter) {
    const int32_t value = row.counters[counter];
    int32_t gap_start = 0;
    bool exact = false;
    bool relevant = false;
    for (uint32_t i = near_first_[row.state]; i < near_first_[row.state + 1]; ++i) {
      if (near_[i].counter != counter || near_[i].kind == CounterOp::Kind::kEnter) continue;
      relevant = true;
      const int32_t limit = near_[i].limit;
      if (value >= limit) {
        gap_start = std::max(gap_start, limit);
      } else if (limit - value <= reach) {
        exact = true;
      }
    }
    if (relevant) key.counters[counter] = static_cast<uint16_t>(exact ? value : gap_start);
  }
  return key;
}

}  // namespace pagemill
