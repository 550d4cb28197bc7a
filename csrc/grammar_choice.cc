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

void GrammarRows::find_settled(std::span<const int32_t> slots, const Drafts& drafts,
                               std::span<int32_t> out) {
  if (out.size() != check(slots, drafts)) throw std::invalid_argument("one result a position");
  at_positions(slots, drafts, [&](size_t i, const Slot& slot, const RowState& state, bool first) {
    out[i] = -1;
    if (slot.grammar == nullptr || (first && slot.closing.narrows(state))) return;
    slot.grammar->with_mask(state, Grammar::Split::kOwn,
                            [&](std::span<const int32_t>, int32_t popcount,
                                std::span<const int32_t> ids) {
                              if (popcount == 1) out[i] = ids[0];
                            });
  });
}

void GrammarRows::masked_argmax(const float* logits, int64_t stride,
                                std::span<const int32_t> slots, const Drafts& drafts,
                                std::span<int32_t> out, bool settled) {
  check_logits(logits, stride);
  if (out.size() != check(slots, drafts)) throw std::invalid_argument("one result a position");
  size_t row_at = 0;  // of the latest first position
  int64_t logits_at = 0;
  at_positions(slots, drafts, [&](size_t i, const Slot& slot, const RowState& state, bool first) {
    const size_t of_row = first ? row_at++ : row_at - 1;
    if (settled && out[i] >= 0) return;
    const float* row_logits = logits + logits_at++ * stride;
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

void GrammarRows::check_logits(const float* logits, int64_t stride) const {
  if (logits == nullptr) throw std::invalid_argument("no logits");
  if (stride >= vocab_size_) return;
  throw std::invalid_argument("logits of " + std::to_string(stride) + " ids, not " +
                              std::to_string(vocab_size_));
}

void GrammarRows::masked_sample(const float* logits, int64_t stride,
                                std::span<const int32_t> slots, const Drafts& drafts,
                                std::span<const Draw> draws, std::span<int32_t> out) {
  check_logits(logits, stride);
  if (out.size() != check(slots, drafts) || draws.size() != out.size()) {
    throw std::invalid_argument("one draw and one result a position");
  }
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
    const float* row_logits = logits + static_cast<int64_t>(i) * stride;
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
