// One draft on its way, byte by byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "draft_source.h"

namespace pagemill {

struct DraftConfig {
  int32_t most_tokens = 12;  // of one row
  bool forced = true;        // runs that the grammar leaves no choice about
  bool page = true;          // spans copied from the prompt, and what records had before
};

// A byte of a draft: its guess, and the chance that it holds if those before it did.
struct DraftByte {
  Guess guess;
  uint8_t length;  // class
  float rate;
};

// Guesses at the bytes that follow a place of a record. Holds copies of what changes on the way;
// what it copies from must outlive it.
class DraftWalk {
 public:
  struct Sources {
    const Grammar* grammar;
    PromptText* prompt;
    const TextIndex* record;
    RecordHistory* history;
    const GuessRates* rates;
  };
  DraftWalk(const Sources& sources, const RecordPlace& place, std::vector<ValueGuess> values,
            const DraftConfig& config);

  // Guesses until `most` bytes are reached or nothing more can be guessed.
  void run(size_t most);

  // What the value that starts at `place` may be.
  static std::vector<ValueGuess> guess_values(const Sources& sources, const RecordPlace& place,
                                              std::string_view record);

  const std::string& bytes() const { return bytes_; }
  const std::vector<DraftByte>& guesses() const { return guesses_; }
  const std::vector<RowState>& states() const { return states_; }  // before each byte
  // Whether a byte belongs to the structure: outside of strings, or a quote.
  const std::vector<uint8_t>& structural() const { return structural_; }

 private:
  bool push(uint8_t byte, Guess guess, size_t matched, float rate);
  float rate(Guess guess, size_t matched) const {
    return (*sources_.rates)[index_of(guess)][length_class(matched)];
  }
  bool add_forced();
  bool add_in_value();
  bool add_prompt(int32_t at, size_t matched);
  bool add_between();
  void find_values();
  bool add_start();
  bool add_text(std::string_view text, Guess guess, size_t matched, float first_rate);
  std::string tail() const;  // of the record
  // Where the record had its latest bytes before.
  TextIndex::Match find_again(std::string_view context) const;

  Sources sources_;
  RecordPlace place_;
  std::vector<ValueGuess> values_;
  DraftConfig config_;
  size_t most_ = 0;
  std::string bytes_;
  std::vector<DraftByte> guesses_;
  std::vector<RowState> states_;
  std::vector<uint8_t> structural_;
};

}  // namespace pagemill
