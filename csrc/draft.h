// Guesses at what a constrained row says next: what its grammar forces, what its page says.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bpe.h"
#include "grammar_rows.h"
#include "json_cursor.h"
#include "page_index.h"
#include "row_state.h"

namespace pagemill {

// Why a drafted byte is thought to come next. A token counts as the riskiest of its bytes.
enum class DraftKind : uint8_t {
  kForced,   // the grammar leaves nothing else
  kLong,     // goes on after a longer match of the string so far
  kShort,    // after a shorter one
  kNext,     // the line after the array's latest element
  kLabel,    // stands under the member's name
  kHeading,  // the page's heading, for a record's first value
  kHabit,    // what followed here in the latest record of the grammar, outside of strings
};
inline constexpr size_t kNumDraftKinds = 7;

struct DraftConfig {
  int32_t most_tokens = 12;  // of one row
  bool forced = true;        // runs that the grammar leaves no choice about
  bool page = true;          // spans copied from the row's page, and what earlier records had
};

// Drafts for the slots of a batch, as tokens that a verifying pass either confirms or refuses; a
// draft never changes an answer. Drafts are made as bytes, encoded once, and legal from the row's
// state on. How far a row copies follows from how often copies of that kind held lately: a token
// is drafted while the chance that it is reached and right is above kWorthwhile.
//
// Reads the states of `rows`, which must outlive it. Step thread only.
class Drafter {
 public:
  Drafter(const GrammarRows& rows, std::shared_ptr<const BpeEncoder> encoder, DraftConfig config);

  // A slot's request begins, or goes on after these tokens. An empty page has nothing to copy.
  void start(int32_t slot, std::string page, std::span<const int32_t> output);
  void end(int32_t slot);

  // What a step brought: per slot `counts` tokens, flat in `tokens`, of which the first might be
  // accepted drafts. Writes how many of those were forced and how many copied.
  void advance(std::span<const int32_t> slots, std::span<const int32_t> counts,
               std::span<const int32_t> tokens, std::span<const int32_t> num_drafts,
               std::span<int32_t> forced, std::span<int32_t> copied);

  // Appends the drafts of each slot to `tokens`; starts gets one element more than there are
  // slots. Slots without a grammar have none.
  void propose(std::span<const int32_t> slots, std::vector<int32_t>& starts,
               std::vector<int32_t>& tokens);

 private:
  using Rates = std::array<float, kNumDraftKinds>;
  struct Slot {
    bool used = false;
    std::unique_ptr<PageIndex> page;
    JsonCursor cursor;
    RowState state;                    // after the bytes taken
    int32_t place = PageIndex::kNone;  // where the latest value ends on the page
    Rates rates{};                     // chance that a token of a kind holds
    std::array<uint8_t, kNumDraftKinds> waited{};  // drafts passed by since that kind was tried
    std::vector<int32_t> tokens;  // the latest draft and the kinds of its tokens
    std::vector<DraftKind> kinds;
  };
  // A draft on its way, byte by byte.
  struct Walk {
    const Grammar* grammar;
    const PageIndex* page;
    RowState state;
    JsonCursor cursor;
    int32_t place;
    bool on_page = false;  // `place` is where the open string goes on
    DraftKind kind = DraftKind::kLong;
    std::string bytes;
    std::vector<DraftKind> kinds;

    const std::vector<int16_t>* habits;

    bool push(uint8_t byte, DraftKind as);
    bool may(uint8_t byte) const;
  };
  static constexpr float kWorthwhile = 0.3f;

  Slot& at(int32_t slot);
  void take(int32_t index, Slot& slot, std::span<const int32_t> tokens);
  void follow(Slot& slot, uint8_t byte);
  std::vector<int16_t>& habits_of(const Grammar& grammar);
  void make(int32_t index, Slot& slot);
  bool add_forced(Walk& walk) const;
  bool add_copied(Walk& walk) const;
  bool open_value(Walk& walk) const;
  bool find_start(Walk& walk) const;
  bool add_habit(Walk& walk) const;
  void encode(Slot& slot, const RowState& start, const Walk& walk) const;
  size_t keep(Slot& slot) const;
  void learn(Slot& slot, DraftKind kind, bool held);

  const GrammarRows& rows_;
  std::shared_ptr<const BpeEncoder> encoder_;
  DraftConfig config_;
  std::vector<Slot> slots_;
  Rates rates_;  // of all slots: where a new one begins

  // By grammar and state, the byte that followed last; -1 none. Never of strings' contents.
  std::unordered_map<const Grammar*, std::vector<int16_t>> habits_;
};

}  // namespace pagemill
