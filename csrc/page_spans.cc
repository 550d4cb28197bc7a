#include "page_spans.h"

#include <algorithm>
#include <atomic>

#include "suffix_array.h"

namespace pagemill {
namespace {

enum class Kind : uint8_t { kNone, kSpace, kWord, kFlag, kOther, kAttached };

constexpr uint32_t kJoiner = 0x200D;
constexpr uint32_t kInvalid = 0xFFFFFFFF;

struct Range {
  uint32_t low, high;
};

template <size_t n>
bool is_in(const Range (&ranges)[n], uint32_t code) {
  for (const Range& range : ranges) {
    if (code >= range.low && code <= range.high) return true;
  }
  return false;
}

constexpr Range kSpaces[] = {{0x09, 0x0D},     {0x20, 0x20},     {0x85, 0x85},
                             {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200B},
                             {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                             {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
constexpr Range kAttachments[] = {{0x300, 0x36F},     {0xE31, 0xE31},     {0xE34, 0xE3A},
                                  {0xE47, 0xE4E},     {0xEB1, 0xEB1},     {0xEB4, 0xEBC},
                                  {0xEC8, 0xECE},     {0x102B, 0x103E},   {0x1056, 0x1059},
                                  {0x17B4, 0x17D3},   {0x1AB0, 0x1AFF},   {0x1DC0, 0x1DFF},
                                  {0x200C, 0x200D},   {0x20D0, 0x20FF},   {0x3099, 0x309A},
                                  {0xFE00, 0xFE0F},   {0xFE20, 0xFE2F},   {0x1F3FB, 0x1F3FF},
                                  {0xE0100, 0xE01EF}};
constexpr Range kFlags[] = {{0x1F1E6, 0x1F1FF}};
// Beyond ASCII: punctuation, symbols, and the scripts that put no spaces between words.
constexpr Range kOthers[] = {{0x80, 0xA9},      {0xAB, 0xB4},      {0xB6, 0xB9},
                             {0xBB, 0xBF},      {0xD7, 0xD7},      {0xF7, 0xF7},
                             {0xE00, 0xEFF},    {0x1000, 0x109F},  {0x1780, 0x17FF},
                             {0x2010, 0x206F},  {0x20A0, 0x20CF},  {0x2190, 0x2BFF},
                             {0x2E00, 0x31FF},  {0x3200, 0x9FFF},  {0xE000, 0xFAFF},
                             {0xFE30, 0xFE6F},  {0xFF00, 0xFF0F},  {0xFF1A, 0xFF20},
                             {0xFF3B, 0xFF40},  {0xFF5B, 0xFF9F},  {0xFFE0, 0xFFFF},
                             {0x1F000, 0x1FAFF}, {0x20000, 0x3FFFF}};

Kind kind_of(uint32_t code) {
  if (code < 0x80) {
    if (is_in(kSpaces, code)) return Kind::kSpace;
    const bool letter = (code | 0x20) >= 'a' && (code | 0x20) <= 'z';
    return letter || (code >= '0' && code <= '9') || code == '_' ? Kind::kWord : Kind::kOther;
  }
  if (is_in(kSpaces, code)) return Kind::kSpace;
  if (is_in(kAttachments, code)) return Kind::kAttached;
  if (is_in(kFlags, code)) return Kind::kFlag;
  return is_in(kOthers, code) ? Kind::kOther : Kind::kWord;
}

struct Decoded {
  uint32_t code;  // kInvalid
  size_t size;
};

Decoded decode(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < size) return {kInvalid, 1};
  uint32_t code = first & (0xFF >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {kInvalid, 1};
    code = code << 6 | (byte(i) & 0x3F);
  }
  const bool overlong = (size == 3 && code < 0x800) || (size == 4 && code < 0x10000);
  if (overlong || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return {kInvalid, 1};
  return {code, size};
}

char short_escape(uint32_t code) {
  switch (code) {
    case '\b': return 'b';
    case '\t': return 't';
    case '\n': return 'n';
    case '\f': return 'f';
    case '\r': return 'r';
    case '"': return '"';
    case '\\': return '\\';
    default: return 0;
  }
}

}  // namespace

PageSpans::PageSpans(std::string_view text) {
  static std::atomic<uint64_t> made{0};
  number_ = ++made;
  text = text.substr(0, kMaxBytes);
  text_.reserve(text.size() + text.size() / 16 + 1);
  Kind before = Kind::kNone;  // of the character that others are attached to
  bool joins = false;
  while (!text.empty()) {
    const auto [code, size] = decode(text);
    const bool allowed = code != kInvalid && code != 0x7F && (code >= 0x20 || short_escape(code) != 0);
    const Kind kind = allowed ? kind_of(code) : Kind::kNone;
    const bool same_word = kind == before && (kind == Kind::kWord || kind == Kind::kFlag);
    const bool border = !allowed || before == Kind::kNone ||
                        !(kind == Kind::kAttached || joins || same_word);
    const auto place = static_cast<int32_t>(text_.size());
    kinds_.push_back(kCharacter);
    if (border && before != Kind::kNone && before != Kind::kSpace) kinds_.back() |= kEnd;
    if (border && allowed && kind != Kind::kSpace) starts_.push_back(place);
    if (!allowed) {
      text_.push_back('\0');
    } else if (const char escape = short_escape(code); escape != 0) {
      text_ += {'\\', escape};
    } else {
      text_ += text.substr(0, size);
    }
    kinds_.resize(text_.size(), 0);
    joins = code == kJoiner;
    if (!(kind == Kind::kAttached && before != Kind::kNone)) before = kind;
    text.remove_prefix(size);
  }
  kinds_.push_back(kCharacter);
  if (before != Kind::kNone && before != Kind::kSpace) kinds_.back() |= kEnd;
  text_.push_back('\0');
  measure();
  order();
}

void PageSpans::measure() {
  const size_t n = text_.size();
  to_end_.assign(n, kNoEnd);
  end_bytes_.assign(n, kNoEnd);
  for (size_t place = n; place-- > 0;) {
    if ((kinds_[place] & kEnd) != 0) {
      to_end_[place] = end_bytes_[place] = 0;
    } else if (text_[place] != '\0' && to_end_[place + 1] != kNoEnd) {
      const int32_t begun = (kinds_[place] & kCharacter) != 0 ? 1 : 0;
      if (to_end_[place + 1] + begun > kMaxCharacters) continue;
      to_end_[place] = static_cast<uint16_t>(to_end_[place + 1] + begun);
      end_bytes_[place] = static_cast<uint16_t>(end_bytes_[place + 1] + 1);
    }
    // The first byte of a span may lie at an end of what stands before it.
    if (place + 1 < n && end_bytes_[place + 1] != kNoEnd) {
      farthest_ = std::max<int32_t>(farthest_, end_bytes_[place + 1] + 1);
    }
  }
}

void PageSpans::order() {
  std::erase_if(starts_, [&](int32_t start) {
    const uint16_t rest = to_end_[static_cast<size_t>(start) + 1];
    if (rest == kNoEnd || rest >= kMaxCharacters) return true;
    fewest_ = std::min<int32_t>(fewest_, rest + 1);
    return false;
  });
  std::vector<uint8_t> is_start(text_.size(), 0);
  for (const int32_t start : starts_) is_start[static_cast<size_t>(start)] = 1;
  starts_.clear();
  for (const int32_t place : suffix_array(text_)) {
    if (is_start[static_cast<size_t>(place)] != 0) starts_.push_back(place);
  }
}

bool PageSpans::enter(PageSpan& span, uint16_t most) const {
  if (fewest_ > most) return false;
  span = {};
  span.high = static_cast<int32_t>(starts_.size());
  span.room = static_cast<uint16_t>(std::min<int32_t>(most, kMaxCharacters));
  return true;
}

PageSpans::Step PageSpans::step(PageSpan& span, uint8_t byte) const {
  const int32_t length = span.length;
  const auto first = starts_.begin() + span.low;
  const auto last = starts_.begin() + span.high;
  const auto low = std::partition_point(first, last, [&](int32_t start) {
    return at(start, length) < byte;
  });
  const auto high = std::partition_point(low, last, [&](int32_t start) {
    return at(start, length) == byte;
  });
  if (low == high || byte == 0) {
    if (byte != '"' || length == 0) return Step::kNo;
    const bool ends = std::any_of(first, last, [&](int32_t start) {
      return (kinds_[static_cast<size_t>(start + length)] & kEnd) != 0;
    });
    return ends ? Step::kLeft : Step::kNo;
  }
  const int32_t begun = (kinds_[static_cast<size_t>(*low + length)] & kCharacter) != 0 ? 1 : 0;
  const int32_t room = span.room - begun;
  if (room < 0) return Step::kNo;
  const bool can_end = std::any_of(low, high, [&](int32_t start) {
    return to_end_[static_cast<size_t>(start + length + 1)] <= room;
  });
  if (!can_end) return Step::kNo;
  span.low = static_cast<int32_t>(low - starts_.begin());
  span.high = static_cast<int32_t>(high - starts_.begin());
  span.length = static_cast<uint16_t>(length + 1);
  span.room = static_cast<uint16_t>(room);
  return Step::kInside;
}

int32_t PageSpans::bytes_to_end(const PageSpan& span) const {
  int32_t nearest = kNever;
  for (int32_t i = span.low; i < span.high; ++i) {
    size_t place = static_cast<size_t>(starts_[static_cast<size_t>(i)] + span.length);
    int32_t bytes = 0;
    int32_t room = span.room;
    if (span.length == 0) {
      ++place, ++bytes, --room;
    }
    if (to_end_[place] <= room) nearest = std::min<int32_t>(nearest, bytes + end_bytes_[place]);
  }
  return nearest;
}

}  // namespace pagemill
