// What drafts are copied from: a request's prompt, its record so far, earlier records.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar.h"
#include "json_cursor.h"
#include "row_state.h"
#include "text_index.h"

namespace pagemill {

// Why a drafted byte is thought to come next.
enum class Guess : uint8_t {
  kForced,     // the grammar leaves no other token
  kRunEnd,     // nor other text, but a token that reaches beyond the text could stand there
  kPrompt,     // the open string goes on as the prompt does after the same bytes
  kRecord,     // the record goes on as it did before after the same bytes
  kPast,       // the same of earlier records of the grammar
  kClose,      // the line that is copied ends here
  kHabit,      // between values: what came here last
  kLabel,      // the value stands under the member's name; from here on: of a value's start
  kHeading,    // it is the page's heading
  kNext,       // it is the line after the latest value
  kLatest,     // it is the value before this one
  kFirst,      // it is the record's first value
  kPastValue,  // it is what the latest record had here
  kOpen,       // it is a string
};
inline constexpr size_t kNumGuesses = 14;
std::string_view guess_name(Guess guess);
inline constexpr size_t index_of(Guess guess) { return static_cast<size_t>(guess); }

// How often guesses hold, by kind and by how many bytes have matched before.
inline constexpr size_t kNumLengths = 4;
inline constexpr size_t length_class(size_t matched) {
  return matched < 4 ? 0 : matched < 8 ? 1 : matched < 16 ? 2 : 3;
}
using GuessRates = std::array<std::array<float, kNumLengths>, kNumGuesses>;

// A whole value as it may come: with its quotes, or with the byte after a number.
struct ValueGuess {
  Guess guess;
  std::string text;
  float rate;  // chance that it starts well
};

// What is known of a grammar's records, to all requests that have it.
class RecordHistory {
 public:
  explicit RecordHistory(int32_t num_states) : habits_(num_states, -1) {}

  int32_t num_states() const { return static_cast<int32_t>(habits_.size()); }

  // The byte that came last in a state, between values; -1 none.
  int16_t& habit(int32_t state) { return habits_[state]; }

  const TextIndex& records() const { return records_; }

  // A value stood at `at` of a record that is to be kept; `state` is the one before it.
  void add_record(const std::string& record, const std::unordered_map<int32_t, int32_t>& values);

  // Where the latest value of a state starts in records(); TextIndex::kNone.
  int32_t latest(int32_t state) const;

  // Chance that a guess at the value of a state starts well, and what it turned out to be.
  float rate(int32_t state, Guess guess, float prior) const;
  void learn(int32_t state, Guess guess, bool held);

 private:
  static constexpr size_t kMostBytes = 1 << 16;
  struct Tally {
    std::array<float, kNumGuesses> held{};
    std::array<float, kNumGuesses> tried{};
  };
  std::vector<int16_t> habits_;
  TextIndex records_;
  std::unordered_map<int32_t, int32_t> latest_;
  std::unordered_map<int32_t, Tally> tallies_;
};

// Where a record stands: what follows from its bytes alone. A value, copied to look ahead.
struct RecordPlace {
  RowState state;
  JsonCursor cursor;
  int32_t length = 0;          // bytes of the record
  int32_t value_at = -1;       // where the open value starts, -1 between values
  int32_t value_state = -1;    // the state before it
  int32_t latest_at = -1;      // where the latest whole value starts
  int32_t first_at = -1;       // where the record's first one does
  int32_t prompt_at = TextIndex::kNone;  // where the latest value ends in the prompt

  // Takes a byte that `grammar` allows; false, with nothing changed, when it doesn't. `ended`: a
  // value was completed by it, or before it.
  bool push(const Grammar& grammar, uint8_t byte, bool& ended);
  bool may(const Grammar& grammar, uint8_t byte) const;
  // A value may start at this place, a number or a string.
  bool at_value() const { return value_at < 0 && cursor.at_value(); }
};

// The value that starts at `at` of a JSON text, cut to a sensible length; a number with the byte
// after it.
std::string value_text(std::string_view json, int32_t at);

// The prompt of a request; its page begins at page_from().
class PromptText {
 public:
  PromptText() = default;
  PromptText(std::string text, std::string_view page);

  const TextIndex& index() const { return index_; }
  std::string_view text() const { return index_.text(); }

  // Places in text(); of the page alone.
  std::optional<int32_t> label(std::string_view name);
  std::optional<int32_t> heading() const { return heading_; }
  std::optional<int32_t> line_after(int32_t at) const;

  // The line from `at` as a JSON string, or as a number if `quoted` is false.
  std::string value_at(int32_t at, bool quoted) const;

 private:
  TextIndex index_;
  size_t page_from_ = 0;
  std::optional<int32_t> heading_;
  std::unordered_map<std::string, std::optional<int32_t>> labels_;
};

}  // namespace pagemill
