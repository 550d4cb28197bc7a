// The grammars of the persistent batch's slots.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "grammar.h"
#include "row_closing.h"
#include "row_state.h"
#include "sample.h"

namespace pagemill {

// For each slot the grammar that constrains it, if any, and its decoding state. A slot without a
// grammar may take every id below vocab_size. Step thread only. Methods that take several slots
// check all arguments first: when they throw (std::invalid_argument), nothing has changed.
class GrammarRows {
 public:
  // `vocab_size` is the width of the logits; grammars may have a smaller vocabulary, the ids above
  // it are padding and never legal under a grammar.
  GrammarRows(int32_t num_slots, int32_t vocab_size);

  int32_t num_words() const { return num_words_; }
  int32_t num_slots() const { return static_cast<int32_t>(slots_.size()); }

  // `page`: what the grammar's verbatim strings may hold; without it they are null.
  void attach(int32_t slot, std::shared_ptr<Grammar> grammar,
              std::shared_ptr<const PageSpans> page = nullptr);
  void detach(int32_t slot);
  bool is_attached(int32_t slot) const { return slots_[check(slot)].grammar != nullptr; }

  // A copy of a slot's state, and the way back to one; the slot must have a grammar.
  RowState state(int32_t slot) const;
  const Grammar& grammar(int32_t slot) const { return *constrained(slot).grammar; }
  const PageSpans* page(int32_t slot) const { return slots_[check(slot)].page.get(); }

  // `state` must have been the slot's, under the same page.
  void set_state(int32_t slot, const RowState& state);

  // From now on a slot's record is closed within `tokens_left` tokens (-1: it isn't), and left
  // where it loops if `loops`. Follows attach() and counts on by advance(); set_state() leaves
  // it alone. Nothing happens where the grammar's distances aren't known.
  void set_closing(int32_t slot, int32_t tokens_left, bool loops);

  // Whether the slot may now take less than its grammar allows; false is certain.
  bool is_narrowed(int32_t slot) const;

  // Says which id the slot would take by its grammar alone, so that cut records are marked.
  // masked_argmax sees to it by itself.
  void note_best(int32_t slot, int32_t token);

  // Hands out the slots' marks (RowClosing::kCut, kLooped) and clears them.
  void take_marks(std::span<const int32_t> slots, std::span<uint8_t> out);

  // Drafts of several slots, flat: those of slots[i] are tokens[starts[i]] up to starts[i + 1].
  // A slot with d drafts has d + 1 positions: before the first draft, and after each of them.
  // Without starts no slot has drafts.
  struct Drafts {
    std::span<const int32_t> starts;
    std::span<const int32_t> tokens;
  };

  // out: [positions, num_words], bit i % 32 of word i / 32; a position's mask takes the drafts
  // before it to be accepted. Closing narrows the first alone, see accept(). After an illegal
  // draft the masks mean nothing. `ordinary`: by the grammars alone.
  void fill_bitmask(std::span<const int32_t> slots, const Drafts& drafts, std::span<int32_t> out,
                    bool ordinary = false);

  // Which logits the positions need.
  struct Wanted {
    std::vector<int32_t> settled;  // by position: the id if its mask leaves but one, else -1
    std::vector<int32_t> lines;    // by position: its row of logits; -1 where settled
    int32_t num_lines = 0;
    int32_t num_sparse = 0;        // the last lines: of those only the logits of `outputs` are read
    std::vector<int32_t> outputs;  // ascending
  };
  // A mask of at most `most` ids (up to MaskPool::kSparseLimit; 0: none) makes a sparse line. What
  // closing narrows counts as open, and so does the first position of slots[i] where whole[i] isn't
  // 0 (an empty `whole`: nowhere).
  Wanted find_wanted(std::span<const int32_t> slots, const Drafts& drafts, int32_t most,
                     std::span<const uint8_t> whole);

  // out[i] = the legal id with the largest logit of position i, the lowest such id among equals;
  // -1 when no id is legal. logits: [positions, stride], at least vocab_size wide. With `lines`
  // they are those of find_wanted(), and positions whose line is -1 keep out[i].
  void masked_argmax(const float* logits, int64_t stride, std::span<const int32_t> slots,
                     const Drafts& drafts, std::span<int32_t> out,
                     std::span<const int32_t> lines = {});

  // As masked_argmax, but each position's id is drawn from its legal ones as `draws` says.
  void masked_sample(const float* logits, int64_t stride, std::span<const int32_t> slots,
                     const Drafts& drafts, std::span<const Draw> draws, std::span<int32_t> out,
                     std::span<const int32_t> lines = {});

  // counts[i] = how many of the ids chosen at the positions of slots[i] stand: each up to the
  // first that isn't the draft, that leaves only the end, or after which closing narrows the
  // mask: what follows is for the next pass to choose. `chosen`: [positions].
  void accept(std::span<const int32_t> slots, const Drafts& drafts,
              std::span<const int32_t> chosen, std::span<int32_t> counts) const;

  // Moves each row by its token, in order; a slot may stand there several times.
  void advance(std::span<const int32_t> slots, std::span<const int32_t> tokens,
               std::span<uint8_t> ends);

  // How many of the tokens are legal one after another from the slot's state, which stays.
  int32_t count_legal(int32_t slot, std::span<const int32_t> tokens) const;

 private:
  struct Slot {
    std::shared_ptr<Grammar> grammar;
    std::shared_ptr<const PageSpans> page;
    RowState state;
    RowClosing closing;
  };

  size_t check(int32_t slot) const;
  // Checks drafts against slots; returns the number of positions.
  size_t check(std::span<const int32_t> slots, const Drafts& drafts) const;
  // Calls use(position, slot, state, first) for each position in order; `first`: of its slot.
  template <typename Use>
  void at_positions(std::span<const int32_t> slots, const Drafts& drafts, Use use) const;
  const Slot& constrained(int32_t slot) const;
  void check_logits(const float* logits, int64_t stride, size_t positions,
                    std::span<const int32_t> lines) const;

  int32_t vocab_size_;
  int32_t num_words_;
  std::vector<Slot> slots_;
  std::vector<int32_t> narrow_;  // a mask being narrowed
};

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

}  // namespace pagemill
