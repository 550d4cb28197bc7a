// Where in a text a piece of text stands.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pagemill {

// The places of a text by the three bytes before them, as chains from the last to the first
// (the match finder of LZ77 compressors). The text may grow at its end: one step a byte, five
// bytes of memory a byte of text and a table of at most that size.
class TextIndex {
 public:
  static constexpr int32_t kNone = -1;
  static constexpr int32_t kGram = 3;
  static constexpr size_t kMaxBytes = 1 << 20;

  TextIndex() = default;
  explicit TextIndex(std::string text) { append(text); }

  // Throws std::invalid_argument, changing nothing, for a text that would be over kMaxBytes.
  void append(std::string_view more);

  std::string_view text() const { return text_; }

  struct Match {
    int32_t end = kNone;  // the place after it; kNone: there is none of at least kGram bytes
    int32_t length = 0;
  };

  // The longest suffix of `context` that ends in the text before place `stop`, the nearest to
  // `near` among equals. Looks at most at kMaxCandidates places.
  Match find_suffix(std::string_view context, int32_t near, int32_t stop = 1 << 30) const;

  static constexpr int32_t kMaxCandidates = 512;
  static constexpr int32_t kMaxMatch = 64;  // longer ones count as equal

 private:
  size_t slot(const char* gram) const;
  void add(size_t end);

  std::string text_;
  uint32_t mask_ = 0;
  std::vector<int32_t> last_;      // by hash: the last place after such three bytes
  std::vector<int32_t> previous_;  // by place: the one before it
};

}  // namespace pagemill
