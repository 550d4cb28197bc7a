// Byte-level byte-pair encoding of short texts.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
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

// Encodes bytes as a byte-level BPE tokenizer does (Sennrich et al. 2016; Radford et al. 2019):
// the text is split into pieces by the expression of GPT-2, and within each piece the pair of
// lowest rank is merged until none is left. `split_digits` sets every numeric character apart
// first. Bytes that are no UTF-8 count as characters of class kOther. Immutable.
//
// The time grows with the square of the longest piece: for drafts, not for documents.
class BpeEncoder {
 public:
  // `byte_ids` has the token of each single byte; -1: there is none, and the byte is passed over.
  // Throws std::invalid_argument for ids below that, or when there are not 256 of them.
  BpeEncoder(std::vector<int32_t> byte_ids, std::span<const Merge> merges, CharClasses classes,
             bool split_digits);

  // Appends the tokens of `text` to `out`.
  void encode(std::string_view text, std::vector<int32_t>& out) const;

 private:
  struct Char {
    CharClass kind;
    size_t length;
  };
  Char char_at(std::string_view text, size_t at) const;
  size_t run(std::string_view text, size_t at, CharClass kind) const;
  size_t piece(std::string_view text, size_t at) const;  // its end
  void encode_segment(std::string_view text, std::vector<int32_t>& out) const;
  void merge(std::string_view piece, std::vector<int32_t>& out) const;

  struct Known {
    int32_t rank, merged;
  };
  std::vector<int32_t> byte_ids_;
  std::unordered_map<uint64_t, Known> merges_;
  CharClasses classes_;
  bool split_digits_;
};

}  // namespace pagemill
