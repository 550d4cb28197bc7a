#include "grammar_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

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

GrammarRows::GrammarRows(int32_t num_slots, int32_t vocab_size)
    : vocab_size_(vocab_size), num_words_((vocab_size + 31) / 32) {
  if (num_slots <= 0 || num_slots > 1 << 20) {
    throw std::invalid_argument("grammar rows for " + std::to_string(num_slots) + " slots");
  }
  if (vocab_size <= 0 || vocab_size > 1 << 22) {
    throw std::invalid_argument("grammar rows for " + std::to_string(vocab_size) + " ids");
  }
  slots_.resize(num_slots);
}

size_t GrammarRows::check(int32_t slot) const {
  if (slot < 0 || static_cast<size_t>(slot) >= slots_.size()) {
    throw std::invalid_argument("slot " + std::to_string(slot) + " of " +
                                std::to_string(slots_.size()));
  }
  return static_cast<size_t>(slot);
}

const GrammarRows::Slot& GrammarRows::constrained(int32_t slot) const {
  const Slot& found = slots_[check(slot)];
  if (found.grammar == nullptr) {
    throw std::invalid_argument("slot " + std::to_string(slot) + " has no grammar");
  }
  return found;
}

void GrammarRows::attach(int32_t slot, std::shared_ptr<Grammar> grammar) {
  Slot& target = slots_[check(slot)];
  if (grammar == nullptr) throw std::invalid_argument("no grammar to attach");
  if (grammar->trie().vocab_size() > vocab_size_) {
    throw std::invalid_argument("a grammar of " + std::to_string(grammar->trie().vocab_size()) +
                                " ids over logits of " + std::to_string(vocab_size_));
  }
  target.state = grammar->start();
  target.closing = RowClosing{};
  target.grammar = std::move(grammar);
}

void GrammarRows::detach(int32_t slot) { slots_[check(slot)] = Slot{}; }

RowState GrammarRows::state(int32_t slot) const {
  return constrained(slot).state;
}

void GrammarRows::set_state(int32_t slot, const RowState& state) {
  constrained(slot).grammar->check(state);
  slots_[slot].state = state;
}

void GrammarRows::set_closing(int32_t slot, int32_t tokens_left, bool loops) {
  const Grammar& grammar = *constrained(slot).grammar;
  RowClosing closing;
  if (tokens_left >= 0 || loops) closing.start(grammar.closing(), tokens_left, loops);
  slots_[slot].closing = closing;
}

bool GrammarRows::is_narrowed(int32_t slot) const {
  const Slot& of = slots_[check(slot)];
  return of.grammar != nullptr && of.closing.narrows(of.state);
}

void GrammarRows::note_best(int32_t slot, int32_t token) {
  const Grammar& grammar = *constrained(slot).grammar;
  Slot& of = slots_[slot];
  RowState moved = of.state;
  if (grammar.advance(moved, token)) of.closing.note_best(moved);
}

void GrammarRows::take_marks(std::span<const int32_t> slots, std::span<uint8_t> out) {
  if (out.size() != slots.size()) throw std::invalid_argument("one mark a row");
  for (const int32_t slot : slots) check(slot);
  for (size_t i = 0; i < slots.size(); ++i) out[i] = slots_[slots[i]].closing.take_marks();
}

size_t GrammarRows::check(std::span<const int32_t> slots, const Drafts& drafts) const {
  for (const int32_t slot : slots) check(slot);
  if (drafts.starts.empty()) return slots.size();
  if (drafts.starts.size() != slots.size() + 1 || drafts.starts[0] != 0 ||
      static_cast<size_t>(drafts.starts.back()) != drafts.tokens.size() ||
      !std::is_sorted(drafts.starts.begin(), drafts.starts.end())) {
    throw std::invalid_argument("the starts of drafts don't fit slots and tokens");
  }
  return slots.size() + drafts.tokens.size();
}

template <typename Use>
void GrammarRows::at_positions(std::span<const int32_t> slots, const Drafts& drafts,
                               Use use) const {
  size_t position = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = slots_[slots[i]];
    RowState state = slot.state;
    use(position++, slot, state, true);
    if (drafts.starts.empty()) continue;
    for (int32_t k = drafts.starts[i]; k < drafts.starts[i + 1]; ++k) {
      if (slot.grammar != nullptr) slot.grammar->advance(state, drafts.tokens[k]);
      use(position++, slot, state, false);
    }
  }
}

void GrammarRows::fill_bitmask(std::span<const int32_t> slots, const Drafts& drafts,
                               std::span<int32_t> out, bool ordinary) {
  if (out.size() != check(slots, drafts) * static_cast<size_t>(num_words_)) {
    throw std::invalid_argument("bitmask of the wrong shape");
  }
  at_positions(slots, drafts, [&](size_t i, const Slot& slot, const RowState& state, bool first) {
    const std::span<int32_t> target = out.subspan(i * num_words_, num_words_);
    if (slot.grammar == nullptr) {
      std::fill(target.begin(), target.end(), -1);
      if (const int32_t rest = vocab_size_ % 32; rest != 0) {
        target.back() = static_cast<int32_t>((uint32_t{1} << rest) - 1);
      }
      return;
    }
    // The shortest way to an end may split forced text in any way.
    const bool narrow = first && !ordinary && slot.closing.narrows(state);
    const auto split = narrow ? Grammar::Split::kAny : Grammar::Split::kOwn;
    slot.grammar->with_mask(state, split, [&](std::span<const int32_t> row, int32_t,
                                              std::span<const int32_t>) {
      std::fill(std::copy(row.begin(), row.end(), target.begin()), target.end(), 0);
    });
    if (narrow) {
      slot.closing.narrow(state, target.first(slot.grammar->trie().num_words()), narrow_);
    }
  });
}

void GrammarRows::masked_argmax(const float* logits, int64_t stride,
                                std::span<const int32_t> slots, const Drafts& drafts,
                                std::span<int32_t> out) {
  if (logits == nullptr) throw std::invalid_argument("no logits");
  if (stride < vocab_size_) {
    throw std::invalid_argument("logits of " + std::to_string(stride) + " ids, not " +
                                std::to_string(vocab_size_));
  }
  if (out.size() != check(slots, drafts)) throw std::invalid_argument("one result a position");
  size_t row_at = 0;  // of the latest first position
  at_positions(slots, drafts, [&](size_t i, const Slot& slot, const RowState& state, bool first) {
    const size_t of_row = first ? row_at++ : row_at - 1;
    const float* row_logits = logits + static_cast<int64_t>(i) * stride;
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

void GrammarRows::accept(std::span<const int32_t> slots, const Drafts& drafts,
                         std::span<const int32_t> chosen, std::span<int32_t> counts) const {
  if (chosen.size() != check(slots, drafts)) {
    throw std::invalid_argument("one chosen id a position");
  }
  if (counts.size() != slots.size()) throw std::invalid_argument("one count a slot");
  size_t first = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    const bool any = !drafts.starts.empty();
    const size_t start = any ? static_cast<size_t>(drafts.starts[i]) : 0;
    const size_t num_drafts = any ? static_cast<size_t>(drafts.starts[i + 1]) - start : 0;
    const Slot& slot = slots_[slots[i]];
    RowState state = slot.state;
    RowClosing closing = slot.closing;
    size_t count = 0;
    bool holds = true;
    while (holds) {
      const int32_t id = chosen[first + count];
      holds = count < num_drafts && id == drafts.tokens[start + count];
      ++count;
      if (!holds || slot.grammar == nullptr) continue;
      const RowState from = state;
      holds = slot.grammar->advance(state, id) && !slot.grammar->only_end(state);
      if (!holds) continue;
      closing.advance(*slot.grammar, from, id);
      holds = !closing.narrows(state);
    }
    counts[i] = static_cast<int32_t>(count);
    first += num_drafts + 1;
  }
}

void GrammarRows::advance(std::span<const int32_t> slots, std::span<const int32_t> tokens,
                          std::span<uint8_t> ends) {
  if (tokens.size() != slots.size() || ends.size() != slots.size()) {
    throw std::invalid_argument("one token and one end a row");
  }
  for (const int32_t slot : slots) check(slot);
  std::vector<std::pair<RowState, RowClosing>> before;
  before.reserve(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    Slot& slot = slots_[slots[i]];
    before.emplace_back(slot.state, slot.closing);
    ends[i] = 0;
    if (slot.grammar == nullptr) continue;
    const Grammar& grammar = *slot.grammar;
    const bool eos = grammar.trie().is_eos(tokens[i]);
    const RowState from = slot.state;
    const bool legal = eos ? grammar.dfa().is_final(slot.state.state)
                           : grammar.advance(slot.state, tokens[i]);
    if (!legal) {
      for (size_t k = before.size(); k-- > 0;) {
        std::tie(slots_[slots[k]].state, slots_[slots[k]].closing) = before[k];
      }
      throw std::invalid_argument("token " + std::to_string(tokens[i]) + " is not legal in slot " +
                                  std::to_string(slots[i]));
    }
    slot.closing.advance(grammar, from, tokens[i]);
    ends[i] = eos || grammar.only_end(slot.state) ? 1 : 0;
  }
}

int32_t GrammarRows::count_legal(int32_t slot, std::span<const int32_t> tokens) const {
  const Slot& from = slots_[check(slot)];
  if (from.grammar == nullptr) return static_cast<int32_t>(tokens.size());
  RowState state = from.state;
  int32_t count = 0;
  while (count < static_cast<int32_t>(tokens.size()) &&
         from.grammar->advance(state, tokens[count])) {
    ++count;
  }
  return count;
}

}  // namespace pagemill
