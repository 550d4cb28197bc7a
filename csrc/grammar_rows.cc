#include "grammar_rows.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

namespace pagemill {

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

void GrammarRows::attach(int32_t slot, std::shared_ptr<Grammar> grammar,
                         std::shared_ptr<const PageSpans> page) {
  Slot& target = slots_[check(slot)];
  if (grammar == nullptr) throw std::invalid_argument("no grammar to attach");
  if (grammar->trie().vocab_size() > vocab_size_) {
    throw std::invalid_argument("a grammar of " + std::to_string(grammar->trie().vocab_size()) +
                                " ids over logits of " + std::to_string(vocab_size_));
  }
  target.state = grammar->start(page.get());
  target.page = std::move(page);
  target.closing = RowClosing{};
  target.grammar = std::move(grammar);
}

void GrammarRows::detach(int32_t slot) { slots_[check(slot)] = Slot{}; }

RowState GrammarRows::state(int32_t slot) const {
  return constrained(slot).state;
}

void GrammarRows::set_state(int32_t slot, const RowState& state) {
  constrained(slot).grammar->check(state);
  Slot& target = slots_[slot];
  if (state.span.is_open() && state.page != target.page.get()) {
    throw std::invalid_argument("a state with a span of another page");
  }
  target.state = state;
  target.state.page = target.page.get();
}

void GrammarRows::set_closing(int32_t slot, int32_t tokens_left, bool loops) {
  const Grammar& grammar = *constrained(slot).grammar;
  RowClosing closing;
  if (tokens_left >= 0 || loops) closing.start(grammar, tokens_left, loops);
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
