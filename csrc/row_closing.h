// What bends a row towards its end: the tokens that it has left, and loops.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "closing.h"
#include "loop_watch.h"
#include "row_state.h"

namespace pagemill {

class Grammar;

// One row's share of closing, beside its state. Narrows the row's mask so that a way to the end
// always fits into what is left, and so that a string or number that loops is left; a way that
// fits wins over a loop. Without start() it does nothing. A value, copied to roll back; the grammar
// must outlive it.
class RowClosing {
 public:
  static constexpr uint8_t kCut = 1;     // the budget forbade the best token
  static constexpr uint8_t kLooped = 2;  // a loop was noticed, and is left from here on

  // tokens_left: -1 for no bound.
  void start(const Grammar& grammar, int32_t tokens_left, bool loops);

  bool narrows(const RowState& row) const {
    if (table_ == nullptr) return false;
    if (watch_.looping() != Region::kNone) return true;
    return tokens_left_ >= 0 && tokens_left_ <= farthest(row) && is_short(row);
  }

  // `mask` holds the legal ids of the grammar. Where nothing would be left of it (the row began
  // with less than it needs), it stays as it is. `scratch` is overwritten.
  void narrow(const RowState& row, std::span<int32_t> mask, std::vector<int32_t>& scratch) const;

  // The grammar alone would choose a token that leads to `row`.
  void note_best(const RowState& row);

  // The row was moved from `from` by a legal token.
  void advance(const Grammar& grammar, const RowState& from, int32_t token);

  uint8_t take_marks() { return std::exchange(marks_, uint8_t{0}); }

 private:
  // No token leads a row farther from the end than this.
  int32_t farthest(const RowState& row) const {
    return table_->farthest() + (row.page == nullptr ? 0 : row.page->farthest() + 2);
  }
  bool is_short(const RowState& row) const;
  // Tokens to the end; out of an open span byte by byte, to the nearest place where it may end.
  int32_t to_end(const RowState& row) const;
  // Whether a token after which the row is `moved` fits, for one in or into a span.
  bool fits_span(const RowState& row, const RowState& moved, int32_t most, Region region) const;

  const Grammar* grammar_ = nullptr;

  const ClosingTable* table_ = nullptr;
  int32_t tokens_left_ = -1;
  bool loops_ = false;
  uint8_t marks_ = 0;
  LoopWatch watch_;
};

}  // namespace pagemill
