// Byte-level byte-pair encoding.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

namespace pagemill {

// What the split of a text into pieces asks of a code point.
enum class CharClass : uint8_t { kOther = 0, kLetter = 1, kNumber = 2, kSpace = 3 };

// The classes of all code points, as runs: run i reaches from starts[i] to the next run's start.
class CharClasses {
 public:
  // `starts` ascends from 0. An empty table puts every code point into kOther.
  CharClasses(std::vector<int32_t> starts, std::vector<uint8_t> classes);

  CharClass of(int32_t code_point) const;

 private:
  std::vector<int32_t> starts_;
  std::vector<uint8_t> classes_;
  std::array<CharClass, 128> ascii_{};
};

// One merge: the token `merged` for two neighbours. A merge's place in the list is its rank.
struct Merge {
  int32_t left, right, merged;
};

// What becomes of two neighbours: the token, and the merge's rank; kNone where they stay two.
class MergeTable {
 public:
  static constexpr int32_t kNone = std::numeric_limits<int32_t>::max();
  struct Known {
    int32_t rank = kNone;
    int32_t merged = 0;
  };

  // Throws std::invalid_argument for negative ids. Of two merges of a pair the later one counts.
  explicit MergeTable(std::span<const Merge> merges);

  Known of(int32_t left, int32_t right) const;
  bool empty() const { return size_ == 0; }

 private:
  struct Slot {
    int32_t left = -1;
    int32_t right = 0;
    Known known;
  };
  size_t first_slot(int32_t left, int32_t right) const;

  std::vector<Slot> slots_;  // open addressing, at most half full
  size_t size_;
  int shift_ = 63;
};

// Encodes bytes as a byte-level BPE tokenizer does (Sennrich et al. 2016; Radford et al. 2019):
// the text is split into pieces by the expression of GPT-2, and within each piece the pair of
// lowest rank is merged until none is left. `split_digits` sets every numeric character apart
// first. Bytes that are no UTF-8 count as characters of class kOther. Immutable.
//
// The time grows as n log n with the length n of a piece.
class BpeEncoder {
 public:
  // `byte_ids` has the token of each single byte; -1: there is none, and the byte is passed over.
  // Throws std::invalid_argument for ids below that, or when there are not 256 of them.
  BpeEncoder(std::vector<int32_t> byte_ids, std::span<const Merge> merges, CharClasses classes,
             bool split_digits);

  // Appends the tokens of `text` to `out`, and to `starts`, unless it is null, the byte at which
  // each begins.
  void encode(std::string_view text, std::vector<int32_t>& out,
              std::vector<int32_t>* starts = nullptr) const;

 private:
  struct Symbol {
    int32_t id;
    int32_t start;  // the byte
    MergeTable::Known next;  // what merging with the symbol behind would give
  };
  struct Char {
    CharClass kind;
    size_t length;
  };
  Char char_at(std::string_view text, size_t at) const;
  size_t run(std::string_view text, size_t at, CharClass kind) const;
  size_t piece(std::string_view text, size_t at) const;  // its end
  template <class Visit>
  void each_piece(std::string_view text, Visit visit) const;
  void merge_short(std::vector<Symbol>& symbols) const;
  void merge_long(std::vector<Symbol>& symbols) const;

  std::vector<int32_t> byte_ids_;
  MergeTable merges_;
  CharClasses classes_;
  bool split_digits_;
};

}  // namespace pagemill
