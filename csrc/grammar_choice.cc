// How GrammarRows choose among legal ids: the best, or one that is drawn.
#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>

#include "grammar_rows.h"

namespace pagemill {
namespace {

// Keeps the best id seen; NaN never wins, so a row of NaN yields its first legal id.
struct Best {
  int32_t id = -1;
  float value = -std::numeric_limits<float>::infinity();

  void offer(int32_t candidate, float logit) {
    if (id < 0 || logit > value) {
      // A leading NaN must not block the numbers after it.
      value = logit == logit ? logit : -std::numeric_limits<float>::infinity();
      id = candidate;
    }
  }
};

constexpr int32_t kBlock = 32;

// The largest number of a block, NaN aside. A loop that vectorises.
float block_max(const float* logits) {
  std::array<float, 8> lanes;
  lanes.fill(-std::numeric_limits<float>::infinity());
  for (int32_t i = 0; i < kBlock; i += 8) {
    for (int32_t k = 0; k < 8; ++k) lanes[k] = logits[i + k] > lanes[k] ? logits[i + k] : lanes[k];
  }
  return *std::max_element(lanes.begin(), lanes.end());
}

int32_t argmax_ids(const float* logits, std::span<const int32_t> ids) {
  Best best;
  for (const int32_t id : ids) best.offer(id, logits[id]);
  return best.id;
}

// `row` has a bit for each id; ids at or above `count` have no logit and no bit.
int32_t argmax_bits(const float* logits, std::span<const int32_t> row, int32_t count) {
  Best best;
  for (size_t i = 0; i < row.size(); ++i) {
    uint32_t word = static_cast<uint32_t>(row[i]);
    if (word == 0) continue;
    const int32_t base = static_cast<int32_t>(i) * kBlock;
    // Few blocks hold a new best; the others are passed by without a look at their bits.
    if (best.id >= 0 && base + kBlock <= count && block_max(logits + base) <= best.value) continue;
    for (; word != 0; word &= word - 1) {
      const int32_t id = base + std::countr_zero(word);
      best.offer(id, logits[id]);
    }
  }
  return best.id;
}

int32_t argmax_all(const float* logits, int32_t count) {
  Best best;
  for (int32_t base = 0; base < count; base += kBlock) {
    const int32_t end = std::min(base + kBlock, count);
    if (best.id >= 0 && end - base == kBlock && block_max(logits + base) <= best.value) continue;
    for (int32_t id = base; id < end; ++id) best.offer(id, logits[id]);
  }
  return best.id;
}

}  // namespace

GrammarRows::Wanted GrammarRows::find_wanted(std::span<const int32_t> slots, const Drafts& drafts,
                                             int32_t most, std::span<const uint8_t> whole) {
  const size_t positions = check(slots, drafts);
  if (most < 0 || most > MaskPool::kSparseLimit) {
    throw std::invalid_argument("a sparse mask of up to " + std::to_string(most) + " ids");
  }
  if (!whole.empty() && whole.size() != slots.size()) {
    throw std::invalid_argument("one flag a slot");
  }
  Wanted wanted;
  wanted.settled.assign(positions, -1);
  wanted.lines.assign(positions, -1);
  std::vector<size_t> sparse;  // positions
  std::vector<uint8_t> is_wanted(static_cast<size_t>(vocab_size_), 0);
  size_t row_at = 0;
  at_positions(slots, drafts, [&](size_t i, const Slot& slot, const RowState& state, bool first) {
    const bool all = first && !whole.empty() && whole[row_at] != 0;
    row_at += first ? 1 : 0;
    const auto needs_all = [&] { wanted.lines[i] = wanted.num_lines++; };
    if (slot.grammar == nullptr || all || (first && slot.closing.narrows(state))) {
      return needs_all();
    }
    slot.grammar->with_mask(state, Grammar::Split::kOwn,
                            [&](std::span<const int32_t>, int32_t popcount,
                                std::span<const int32_t> ids) {
                              if (popcount == 1) {
                                wanted.settled[i] = ids[0];
                              } else if (popcount > most) {
                                needs_all();
                              } else {
                                sparse.push_back(i);
                                for (const int32_t id : ids) is_wanted[static_cast<size_t>(id)] = 1;
                              }
                            });
  });
  for (const size_t i : sparse) wanted.lines[i] = wanted.num_lines++;
  wanted.num_sparse = static_cast<int32_t>(sparse.size());
  for (int32_t id = 0; !sparse.empty() && id < vocab_size_; ++id) {
    if (is_wanted[static_cast<size_t>(id)] != 0) wanted.outputs.push_back(id);
  }
  return wanted;
}

void GrammarRows::masked_argmax(const float* logits, int64_t stride,
                                std::span<const int32_t> slots, const Drafts& drafts,
                                std::span<int32_t> out, std::span<const int32_t> lines) {
  if (out.size() != check(slots, drafts)) throw std::invalid_argument("one result a position");
  check_logits(logits, stride, out.size(), lines);
  size_t row_at = 0;  // of the latest first position
  at_positions(slots, drafts, [&](size_t i, const Slot& slot, const RowState& state, bool first) {
    const size_t of_row = first ? row_at++ : row_at - 1;
    const int64_t line = lines.empty() ? static_cast<int64_t>(i) : lines[i];
    if (line < 0) return;
    const float* row_logits = logits + line * stride;
    if (slot.grammar == nullptr) {
      out[i] = argmax_all(row_logits, vocab_size_);
      return;
    }
    using Split = Grammar::Split;
    slot.grammar->with_mask(state, Split::kOwn, [&](std::span<const int32_t> row, int32_t popcount,
                                                    std::span<const int32_t> ids) {
      out[i] = popcount <= MaskPool::kSparseLimit ? argmax_ids(row_logits, ids)
                                                  : argmax_bits(row_logits, row, vocab_size_);
    });
    if (!first || out[i] < 0 || !slot.closing.narrows(state)) return;
    note_best(slots[of_row], out[i]);
    std::vector<int32_t> narrowed;
    slot.grammar->with_mask(state, Split::kAny, [&](std::span<const int32_t> row, int32_t,
                                                    std::span<const int32_t>) {
      narrowed.assign(row.begin(), row.end());
    });
    slot.closing.narrow(state, narrowed, narrow_);
    out[i] = argmax_bits(row_logits, narrowed, vocab_size_);
  });
}

void GrammarRows::check_logits(const float* logits, int64_t stride, size_t positions,
                               std::span<const int32_t> lines) const {
  if (logits == nullptr) throw std::invalid_argument("no logits");
  if (!lines.empty() && lines.size() != positions) {
    throw std::invalid_argument("one line a position");
  }
  if (stride >= vocab_size_) return;
  throw std::invalid_argument("logits of " + std::to_string(stride) + " ids, not " +
                              std::to_string(vocab_size_));
}

void GrammarRows::masked_sample(const float* logits, int64_t stride,
                                std::span<const int32_t> slots, const Drafts& drafts,
                                std::span<const Draw> draws, std::span<int32_t> out,
                                std::span<const int32_t> lines) {
  if (out.size() != check(slots, drafts) || draws.size() != out.size()) {
    throw std::invalid_argument("one draw and one result a position");
  }
  check_logits(logits, stride, out.size(), lines);
  for (const Draw& by : draws) {
    if (!(by.temperature > 0 && by.top_p > 0 && by.top_p <= 1 && by.uniform >= 0 &&
          by.uniform < 1)) {
      throw std::invalid_argument("a temperature above 0, a top_p up to 1, a uniform below 1");
    }
  }
  std::vector<int32_t> ids;
  std::vector<int32_t> bits;
  size_t row_at = 0;  // of the latest first position
  at_positions(slots, drafts, [&](size_t i, const Slot& slot, const RowState& state, bool first) {
    const size_t of_row = first ? row_at++ : row_at - 1;
    const int64_t line = lines.empty() ? static_cast<int64_t>(i) : lines[i];
    if (line < 0) return;
    const float* row_logits = logits + line * stride;
    ids.clear();
    if (slot.grammar == nullptr) {
      ids.resize(static_cast<size_t>(vocab_size_));
      std::iota(ids.begin(), ids.end(), 0);
    } else {
      const auto take = [&](Grammar::Split split) {
        slot.grammar->with_mask(state, split, [&](std::span<const int32_t> row, int32_t,
                                                  std::span<const int32_t>) {
          bits.assign(row.begin(), row.end());
        });
      };
      take(Grammar::Split::kOwn);
      if (first && slot.closing.narrows(state)) {
        const int32_t best = argmax_bits(row_logits, bits, vocab_size_);
        if (best >= 0) note_best(slots[of_row], best);
        take(Grammar::Split::kAny);
        slot.closing.narrow(state, bits, narrow_);
      }
      for (size_t w = 0; w < bits.size(); ++w) {
        for (uint32_t word = static_cast<uint32_t>(bits[w]); word != 0; word &= word - 1) {
          ids.push_back(static_cast<int32_t>(w) * kBlock + std::countr_zero(word));
        }
      }
    }
    out[i] = draw(row_logits, ids, draws[i]);
  });
}

}  // namespace pagemill
