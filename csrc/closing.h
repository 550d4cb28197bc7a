// How far a record is from its end, in tokens, and which tokens still lead there in time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "byte_dfa.h"
#include "loop_watch.h"
#include "row_state.h"
#include "token_trie.h"

namespace pagemill {

// Tables of one automaton over one vocabulary. A situation is a state together with its counters,
// each cut to the largest minimum that it can still be held against: longer strings and arrays
// are closed in the same way. The steps between situations are an automaton without counters, and
// distances are shortest ways over its tokens. Immutable, so threads may share it.
//
// Where the tokens of all situations would take too long to walk, single bytes stand for tokens:
// distances are then larger than need be, but ways of that length exist. An automaton with more
// than kMaxSituations is not `known`, and nothing can be said about it.
class ClosingTable {
 public:
  static constexpr int32_t kNever = 1 << 30;
  static constexpr int32_t kMaxSituations = 1 << 14;
  static constexpr int64_t kMaxWalk = 30'000'000;  // trie nodes
  static constexpr size_t kMaxEdges = 4'000'000;

  ClosingTable(std::shared_ptr<const ByteDfa> dfa, std::shared_ptr<const TokenTrie> trie);

  bool known() const { return !to_end_.empty(); }
  int32_t num_situations() const { return static_cast<int32_t>(to_end_.size()); }
  const Regions& regions() const { return regions_; }

  // Tokens from the start to the nearest end; kNever when there is no way.
  int32_t least() const { return to_end_.front(); }

  // No token leads farther from an end than this.
  int32_t farthest() const { return farthest_; }

  // The situation of a row, or -1 for a row that its start never leads to.
  int32_t situation(const RowState& row) const;

  int32_t to_end(int32_t situation) const { return to_end_[situation]; }

  // The largest distance from the end that one token can bring about here.
  int32_t farthest_after(int32_t situation) const { return farthest_after_[situation]; }

  // Tokens until the open string, or number, is left.
  int32_t to_leave(int32_t situation) const { return to_leave_[situation]; }

  // bits: one for each id, all zero. Sets those of tokens after which at most `most` tokens are
  // missing to an end, and which leave `region` or come nearer to its end. Tokens that the
  // grammar refuses may be among them.
  void fit(int32_t situation, int32_t most, Region region, std::span<int32_t> bits) const;

 private:
  struct Key {
    int32_t state;
    std::array<uint16_t, kMaxCounters> counters;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  struct Edge {
    int32_t to;
    bool leaves;  // the open string or number
  };

  Key key_of(const RowState& row) const;
  int32_t next(int32_t situation, uint8_t byte) const {
    return next_[situation * num_classes_ + dfa_->byte_class(byte)];
  }
  void find_minimums();
  bool find_situations();
  std::array<int32_t, kMaxCounters> roomiest_count(int32_t state) const;
  bool find_token_edges(std::vector<Edge>& edges, std::vector<size_t>& first) const;
  void find_byte_edges(std::vector<Edge>& edges, std::vector<size_t>& first) const;
  void measure(const std::vector<Edge>& edges, const std::vector<size_t>& first, bool by_bytes);
  bool leaves(int32_t to, uint8_t byte, Region region) const;
  int32_t after_characters(int32_t situation, int32_t count) const;

  // Calls visit(to, left, ids) for each token that can be walked from a situation, and returns
  // the trie nodes seen.
  template <typename Visit>
  int64_t walk(const PreorderTrie& tokens, int32_t from, Region region, Visit visit) const;

  std::shared_ptr<const ByteDfa> dfa_;
  std::shared_ptr<const TokenTrie> trie_;
  Regions regions_;
  size_t num_classes_;
  std::vector<std::array<uint16_t, kMaxCounters>> minimums_;  // by state
  std::vector<int32_t> state_of_;
  std::vector<uint8_t> plain_loop_;  // by state: every plain character leads back
  std::vector<int32_t> next_;        // [situations, classes], -1: none
  std::unordered_map<Key, int32_t, KeyHash> index_;
  std::vector<int32_t> to_end_;
  std::vector<int32_t> to_leave_;
  std::vector<int32_t> farthest_after_;
  int32_t farthest_ = 0;
};

}  // namespace pagemill
