// What kinds of characters there are, as the caller's tables of Unicode know them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pagemill {

// Tests of one code point; the core has no tables of its own.
struct CharacterTests {
  bool (*is_space)(uint32_t);
  bool (*is_decimal)(uint32_t);        // of a number to the base ten
  bool (*is_digit)(uint32_t);          // those, and raised ones
  bool (*is_letter_or_number)(uint32_t);
  uint32_t (*lower)(uint32_t);
};

// Kinds of code points, those of ASCII without a call.
class Characters {
 public:
  explicit Characters(const CharacterTests& tests) : tests_(tests) {}

  bool is_space(uint32_t code) const {
    if (code < 0x80) return code == ' ' || (code >= 9 && code <= 13) || (code >= 28 && code <= 31);
    return tests_.is_space(code);
  }
  bool is_decimal(uint32_t code) const {
    return code < 0x80 ? code >= '0' && code <= '9' : tests_.is_decimal(code);
  }
  bool is_digit(uint32_t code) const {
    return code < 0x80 ? code >= '0' && code <= '9' : tests_.is_digit(code);
  }
  bool is_word(uint32_t code) const {
    if (code >= 0x80) return tests_.is_letter_or_number(code);
    return (code >= '0' && code <= '9') || (code >= 'a' && code <= 'z') ||
           (code >= 'A' && code <= 'Z') || code == '_';
  }
  bool is_letter(uint32_t code) const {
    return code != '_' && is_word(code) && !is_decimal(code);
  }
  uint32_t lower(uint32_t code) const {
    if (code < 0x80) return code >= 'A' && code <= 'Z' ? code + 32 : code;
    return tests_.lower(code);
  }

 private:
  CharacterTests tests_;
};

// Reads valid UTF-8 forwards, code point by code point; of other bytes, one at a time.
class CodePoints {
 public:
  explicit CodePoints(std::string_view text) : text_(text) {}

  bool done() const { return at_ >= text_.size(); }
  size_t at() const { return at_; }

  uint32_t next() {
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(text_[i]); };
    const uint8_t first = byte(at_);
    if (first < 0x80) return ++at_, first;
    const size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC0 || text_.size() - at_ < size) return ++at_, 0xFFFD;
    uint32_t code = first & (0xFFu >> (size + 1));
    for (size_t i = 1; i < size; ++i) code = code << 6 | (byte(at_ + i) & 0x3F);
    at_ += size;
    return code;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

// The last code point of a text that isn't empty.
inline uint32_t last_code_point(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return CodePoints(text.substr(at)).next();
}

inline uint32_t count_code_points(std::string_view text) {
  uint32_t count = 0;
  for (const char byte : text) count += (static_cast<uint8_t>(byte) & 0xC0) != 0x80;
  return count;
}

}  // namespace pagemill
