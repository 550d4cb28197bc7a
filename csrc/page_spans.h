// The spans of a page's text that a verbatim string may hold.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pagemill {

// A span being copied: its occurrences, as an interval of the page's ordered starts. A value.
struct PageSpan {
  int32_t low = 0;
  int32_t high = 0;     // empty outside of a span
  uint16_t length = 0;  // bytes so far
  uint16_t room = 0;    // characters that may still begin
  int32_t body = -1;    // state of the schema's automaton between characters

  bool is_open() const { return low < high; }
  friend bool operator==(const PageSpan&, const PageSpan&) = default;
};

// A suffix array over the starts of words of a text, in the form that the text has inside a JSON
// string: quotes, backslashes and controls escaped in their short form. So a span is walked byte by
// byte as it is written, and where an escape or a character is open, it can't end.
//
// A span is not empty, starts and ends at borders of words, with no white space there, and has at
// most kMaxCharacters. A border lies between any two characters but letters, digits and
// underscores beside each other, and before what attaches to a character; in scripts without
// spaces each character is a word. What no such string holds (invalid UTF-8, other controls) is in
// no span. Immutable, so threads may share it.
class PageSpans {
 public:
  static constexpr int32_t kMaxCharacters = 2000;
  static constexpr int32_t kNever = 1 << 30;

  // Takes `text` as far as its first kMaxBytes.
  static constexpr size_t kMaxBytes = 1 << 17;
  explicit PageSpans(std::string_view text);

  // Opens a span of at most `most` characters; false, with nothing changed, when none is as short.
  bool enter(PageSpan& span, uint16_t most) const;

  enum class Step : uint8_t { kNo, kInside, kLeft };
  // Moves an open span by a byte of the JSON text; its closing quote leaves it. With kInside it can
  // still be ended within its room.
  Step step(PageSpan& span, uint8_t byte) const;

  // Bytes to the nearest place where an open span can end.
  int32_t bytes_to_end(const PageSpan& span) const;

  // No other page of this process has, or will have, the same number.
  uint64_t number() const { return number_; }

  // No open span is farther from such a place than this.
  int32_t farthest() const { return farthest_; }

 private:
  static constexpr uint16_t kNoEnd = 0xFFFF;
  static constexpr uint8_t kCharacter = 1;  // one begins here, or the text ends
  static constexpr uint8_t kEnd = 2;        // a span may end before this place

  void measure();
  void order();
  uint8_t at(int32_t start, int32_t offset) const {
    return static_cast<uint8_t>(text_[static_cast<size_t>(start + offset)]);
  }

  std::string text_;                // escaped; 0 where no span goes on, and at the end
  std::vector<uint8_t> kinds_;      // by place
  std::vector<uint16_t> to_end_;    // by place: characters that begin before the next end
  std::vector<uint16_t> end_bytes_; // and bytes
  std::vector<int32_t> starts_;     // in the order of what follows them
  int32_t fewest_ = kNever;         // characters of the shortest span
  int32_t farthest_ = 0;
  uint64_t number_;
};

}  // namespace pagemill
