#include "row_closing.h"

#include <algorithm>
#include <bit>

#include "grammar.h"

namespace pagemill {

void RowClosing::start(const Grammar& grammar, int32_t tokens_left, bool loops) {
  const ClosingTable& table = grammar.closing();
  if (!table.known()) return;
  grammar_ = &grammar;
  table_ = &table;
  tokens_left_ = std::max(tokens_left, -1);
  loops_ = loops;
}

bool RowClosing::is_short(const RowState& row) const {
  if (grammar_->asks_page(row)) return true;
  const int32_t situation = table_->situation(row);
  return situation >= 0 && tokens_left_ <= table_->farthest_after(situation);
}

int32_t RowClosing::to_end(const RowState& row) const {
  RowState after = row;
  int32_t tokens = 0;
  if (row.span.is_open()) {
    tokens = row.page->bytes_to_end(row.span) + 1;
    after.span = {};
    after.state = grammar_->dfa().next(row.span.body, '"');
    if (after.state < 0 || tokens > ClosingTable::kNever) return ClosingTable::kNever;
  }
  const int32_t situation = table_->situation(after);
  if (situation < 0) return ClosingTable::kNever;
  return std::min(ClosingTable::kNever, tokens + table_->to_end(situation));
}

bool RowClosing::fits_span(const RowState& row, const RowState& moved, int32_t most,
                           Region region) const {
  if (to_end(moved) > most) return false;
  if (region == Region::kNone || !row.span.is_open() || !moved.span.is_open()) return true;
  return row.page->bytes_to_end(moved.span) < row.page->bytes_to_end(row.span);
}

void RowClosing::narrow(const RowState& row, std::span<int32_t> mask,
                        std::vector<int32_t>& scratch) const {
  const int32_t situation = table_->situation(row);
  const bool in_span = row.span.is_open();
  const bool asks_page = grammar_->asks_page(row);
  if (situation < 0 && !in_span) return;
  const int32_t most = tokens_left_ < 0 ? ClosingTable::kNever : tokens_left_ - 1;
  const auto keep = [&](Region region) {
    scratch.assign(mask.size(), 0);
    if (!in_span) table_->fit(situation, most, region, scratch);
    // What leads into a span, or on in one, is in no table.
    for (size_t i = 0; asks_page && i < mask.size(); ++i) {
      for (uint32_t word = static_cast<uint32_t>(mask[i] & ~scratch[i]); word != 0; word &= word - 1) {
        const int bit = std::countr_zero(word);
        RowState moved = row;
        if (!grammar_->advance(moved, static_cast<int32_t>(i) * 32 + bit)) continue;
        if (!in_span && !moved.span.is_open()) continue;
        if (!fits_span(row, moved, most, region)) continue;
        scratch[i] = static_cast<int32_t>(static_cast<uint32_t>(scratch[i]) | uint32_t{1} << bit);
      }
    }
    int32_t any = 0;
    for (size_t i = 0; i < mask.size(); ++i) any |= scratch[i] &= mask[i];
    if (any != 0) std::copy(scratch.begin(), scratch.end(), mask.begin());
    return any != 0;
  };
  if (watch_.looping() != Region::kNone && keep(watch_.looping())) return;
  keep(Region::kNone);
}

void RowClosing::note_best(const RowState& row) {
  if (table_ == nullptr || tokens_left_ < 0) return;
  if (to_end(row) > tokens_left_ - 1) marks_ |= kCut;
}

void RowClosing::advance(const Grammar& grammar, const RowState& from, int32_t token) {
  if (table_ == nullptr) return;
  if (tokens_left_ > 0) --tokens_left_;
  if (!loops_) return;
  const bool found = watch_.push(grammar.dfa(), table_->regions(), from.state, token,
                                 grammar.trie().bytes(token));
  if (found) marks_ |= kLooped;
}

}  // namespace pagemill
