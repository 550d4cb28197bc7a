#include "row_closing.h"

#include <algorithm>

#include "grammar.h"

namespace pagemill {

void RowClosing::start(const ClosingTable& table, int32_t tokens_left, bool loops) {
  if (!table.known()) return;
  table_ = &table;
  tokens_left_ = std::max(tokens_left, -1);
  loops_ = loops;
}

bool RowClosing::is_short(const RowState& row) const {
  const int32_t situation = table_->situation(row);
  return situation >= 0 && tokens_left_ <= table_->farthest_after(situation);
}

void RowClosing::narrow(const RowState& row, std::span<int32_t> mask,
                        std::vector<int32_t>& scratch) const {
  const int32_t situation = table_->situation(row);
  if (situation < 0) return;
  const int32_t most = tokens_left_ < 0 ? ClosingTable::kNever : tokens_left_ - 1;
  const auto keep = [&](Region region) {
    scratch.assign(mask.size(), 0);
    table_->fit(situation, most, region, scratch);
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
  const int32_t situation = table_->situation(row);
  if (situation >= 0 && table_->to_end(situation) > tokens_left_ - 1) marks_ |= kCut;
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
