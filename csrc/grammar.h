// An automaton together with the masks of one vocabulary.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "bpe.h"
#include "byte_dfa.h"
#include "closing.h"
#include "forced_tokens.h"
#include "mask_pool.h"
#include "row_state.h"
#include "token_trie.h"

namespace pagemill {

// Which tokens may follow in which situation. Masks are made when first asked for and kept in a
// pool; situations that differ only in counters far from their limits share one. An id is legal
// when its bytes lead to a living state; end-of-sequence ids exactly in final states; ids without
// bytes never. With an encoder, text that is forced is said in the tokenizer's own tokens alone
// (ForcedTokens). Threads may share a grammar: the pool is behind a lock.
class Grammar {
 public:
  // The pool starts anew above this many masks.
  static constexpr int32_t kMaxMasks = 4096;

  Grammar(std::shared_ptr<const ByteDfa> dfa, std::shared_ptr<const TokenTrie> trie,
          const BpeEncoder* encoder = nullptr);

  const ByteDfa& dfa() const { return *dfa_; }
  const TokenTrie& trie() const { return *trie_; }

  RowState start(const PageSpans* page = nullptr) const;

  // Throws std::invalid_argument when the state is none of this automaton's.
  void check(const RowState& row) const;

  // Which of the legal tokens: all of them, or without those that split forced text otherwise.
  enum class Split : uint8_t { kAny, kOwn };

  // Calls use(row, popcount, sparse_ids) with the packed mask; spans live only during the call.
  template <typename Use>
  void with_mask(const RowState& row, Split split, Use use) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (asks_page(row)) {  // no other page has such a mask
      const PageMask& mask = page_mask(row, split);
      use(std::span<const int32_t>(mask.bits), mask.popcount, std::span<const int32_t>(mask.ids));
      return;
    }
    const int32_t mask = mask_id(row, split);
    use(pool_.row(mask), pool_.popcount(mask), pool_.sparse_ids(mask));
  }

  // The only token of Split::kOwn in a state, as far as states alone tell it; else -1.
  int32_t only_token(int32_t state) const {
    return forced_ ? forced_->only(state) : -1;
  }

  // Whether the next token may depend on the row's page.
  bool asks_page(const RowState& row) const {
    return row.page != nullptr &&
           (row.span.is_open() || (dfa_->has_verbatim() && near_enter_[row.state] != 0));
  }

  // Moves a row by an ordinary token; false, with the row unchanged, when it is not legal.
  bool advance(RowState& row, int32_t token) const;

  // True when nothing but the end can follow.
  bool only_end(const RowState& row) const {
    return dfa_->is_final(row.state) && !dfa_->has_edges(row.state);
  }

  int32_t num_masks() const;

  // Distances to the end; made when first asked for, which takes milliseconds.
  const ClosingTable& closing() const {
    std::call_once(closing_once_, [this] { closing_.emplace(dfa_, trie_); });
    return *closing_;
  }

 private:
  struct KeyHash {
    size_t operator()(const RowState& row) const;
  };

  // Masks by situation, of one kind.
  struct Known {
    std::vector<int32_t> by_state;  // of a state that reaches no counter, or -1
    std::unordered_map<RowState, int32_t, KeyHash> by_situation;
  };

  // A mask of a row and its page. A step asks for one several times, and each field of a record
  // begins with the same.
  struct PageMask {
    RowState row;
    uint64_t page = 0;  // its number: pages come to lie where others lay
    Split split = Split::kAny;
    std::vector<int32_t> bits, ids;
    int32_t popcount = 0;
  };
  static constexpr size_t kPageMasks = 64;

  int32_t mask_id(const RowState& row, Split split);
  const PageMask& page_mask(const RowState& row, Split split);
  void compute(const RowState& row, Split split);
  int32_t list_ids();
  void walk(const PreorderTrie& tokens, const RowState& row);
  void walk_plain(const PreorderTrie& tokens, int32_t state);
  void walk_counted(const PreorderTrie& tokens, const RowState& row);
  void set(int32_t id);
  void find_limits_in_reach();
  RowState canonical(const RowState& row) const;

  std::shared_ptr<const ByteDfa> dfa_;
  std::shared_ptr<const TokenTrie> trie_;

  // Per state, the counter operations that one token can reach: near[near_first[s] .. s + 1].
  std::vector<uint32_t> near_first_;
  std::vector<CounterOp> near_;
  std::vector<uint8_t> near_enter_;  // by state: a verbatim string is among what it reaches

  std::optional<ForcedTokens> forced_;

  mutable std::once_flag closing_once_;
  mutable std::optional<ClosingTable> closing_;

  mutable std::mutex mutex_;
  MaskPool pool_;
  std::array<Known, 2> known_;           // by Split
  std::vector<PageMask> page_masks_;     // the latest, a ring
  size_t next_page_mask_ = 0;
  std::vector<int32_t> scratch_;         // the row being made
  std::vector<int32_t> ids_;             // of the row being made, if they are few
  std::vector<int32_t> states_;          // walk stack without counters
  std::vector<RowState> rows_;           // walk stack with counters
};

}  // namespace pagemill
