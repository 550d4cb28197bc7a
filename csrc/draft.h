// Guesses at what a constrained row says next: what its grammar forces, what its prompt says.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "bpe.h"
#include "draft_source.h"
#include "draft_walk.h"
#include "grammar_rows.h"
#include "token_splits.h"

namespace pagemill {

// Drafts for the slots of a batch, as tokens that a verifying pass either confirms or refuses; a
// draft never changes an answer. Drafts are made as bytes (DraftWalk), split as the tokenizer, or
// of late the model, does, and legal from the row's state on. How far drafts reach follows from how
// often guesses of each kind held lately, and from how full the batch is: see propose().
//
// Reads the states of `rows`, which must outlive it. Step thread only.
class Drafter {
 public:
  Drafter(const GrammarRows& rows, std::shared_ptr<const BpeEncoder> encoder, DraftConfig config);

  // A slot's request begins, or goes on after the tokens of `output`. `prompt`: its tokens; `page`:
  // the text in it that values stand in, as it is there, or nothing.
  void start(int32_t slot, std::span<const int32_t> prompt, std::string_view page,
             std::span<const int32_t> output);
  void end(int32_t slot);

  // The tokens that a grammar's texts begin with: drafts for a request that has no slot yet.
  std::vector<int32_t> first(const Grammar& grammar) const;

  // What a step brought: per slot `counts` tokens, flat in `tokens`, of which the first might be
  // accepted drafts. Writes how many of those were forced and how many copied.
  void advance(std::span<const int32_t> slots, std::span<const int32_t> counts,
               std::span<const int32_t> tokens, std::span<const int32_t> num_drafts,
               std::span<int32_t> forced, std::span<int32_t> copied);

  // Appends the drafts of each slot to `tokens`; starts gets one element more than there are
  // slots. Slots without a grammar have none.
  //
  // A step of n tokens takes as long as fixed_tokens + n of them, and brings as many as it may
  // expect, which are one a slot and the chances of its drafts. Of all slots' drafts the surest are
  // taken while that makes the expected number in that time larger; none below kLeastChance.
  void propose(std::span<const int32_t> slots, float fixed_tokens, std::vector<int32_t>& starts,
               std::vector<int32_t>& tokens);

  // Drafted tokens by Guess that were looked at, and those of them that held.
  struct Count {
    int64_t drafted = 0;
    int64_t held = 0;
  };
  const std::array<Count, kNumGuesses>& counts() const { return counts_; }

 private:
  struct Drafted {
    int32_t token;
    DraftByte guess;  // the riskiest of its bytes
    float chance = 1.0f;  // that it is reached and right
  };
  struct Slot {
    bool used = false;
    PromptText prompt;
    TextIndex record;
    RecordPlace place;
    std::vector<ValueGuess> values;                // of the open value, or the one to come
    std::unordered_map<int32_t, int32_t> values_at;  // by the state before: where values start
    GuessRates rates{};
    std::array<uint8_t, kNumGuesses> waited{};  // drafts passed by since that kind was tried
    TokenSplits::Byte last{0, false};
    bool last_free = false;                     // the latest token was one of several
    std::vector<Drafted> draft;
    size_t settled = 0;  // tokens of it to keep if it isn't cut
  };
  static constexpr float kLeastChance = 0.1f;

  Slot& at(int32_t slot);
  void take(int32_t index, Slot& slot, std::span<const int32_t> tokens);
  void take_byte(Slot& slot, const DraftWalk::Sources& sources, uint8_t byte);
  void end_value(Slot& slot, const DraftWalk::Sources& sources);
  DraftWalk::Sources sources_of(int32_t index, Slot& slot);
  RecordHistory& history_of(const Grammar& grammar);
  void make(int32_t index, Slot& slot);
  void encode(Slot& slot, const Grammar& grammar, const DraftWalk& walk) const;
  float worthwhile(std::span<const int32_t> slots, float fixed_tokens) const;
  size_t keep(Slot& slot, float worthwhile) const;
  void learn(Slot& slot, const DraftByte& guess, bool held);

  const GrammarRows& rows_;
  std::shared_ptr<const BpeEncoder> encoder_;
  DraftConfig config_;
  std::vector<Slot> slots_;
  GuessRates rates_;  // of all slots: where a new one begins
  TokenSplits splits_;
  std::array<Count, kNumGuesses> counts_{};
  std::unordered_map<const Grammar*, RecordHistory> histories_;
};

}  // namespace pagemill
