#include "json_cursor.h"

namespace pagemill {

void JsonCursor::put(uint8_t byte) {
  ++length_;
  // Trimmed rarely, so that a long string costs no move a byte.
  if (tail_.size() >= 2 * kMaxTail) tail_.erase(0, kMaxTail);
  tail_.push_back(static_cast<char>(byte));
}

void JsonCursor::put_code_point(uint32_t c) {
  if (c < 0x80) {
    put(static_cast<uint8_t>(c));
  } else if (c < 0x800) {
    put(static_cast<uint8_t>(0xC0 | c >> 6));
    put(static_cast<uint8_t>(0x80 | (c & 0x3F)));
  } else {
    put(static_cast<uint8_t>(0xE0 | c >> 12));
    put(static_cast<uint8_t>(0x80 | (c >> 6 & 0x3F)));
    put(static_cast<uint8_t>(0x80 | (c & 0x3F)));
  }
}

void JsonCursor::in_string(uint8_t byte) {
  if (hex_left_ > 0) {
    const uint8_t digit = byte <= '9' ? byte - '0' : (byte | 0x20) - 'a' + 10;
    hex_ = hex_ << 4 | (digit & 0xF);
    if (--hex_left_ == 0) put_code_point(hex_);
  } else if (escaped_) {
    escaped_ = false;
    switch (byte) {
      case 'n': put('\n'); break;
      case 't': put('\t'); break;
      case 'r': put('\r'); break;
      case 'b': put('\b'); break;
      case 'f': put('\f'); break;
      case 'u':
        hex_ = 0;
        hex_left_ = 4;
        break;
      default: put(byte);
    }
  } else if (byte == '\\') {
    escaped_ = true;
  } else if (byte == '"') {
    in_string_ = false;
    after_value_ = !is_name_;
    if (is_name_) name_ = tail_;
  } else {
    put(byte);
  }
}

void JsonCursor::push(uint8_t byte) {
  if (in_string_) return in_string(byte);
  switch (byte) {
    case '"':
      in_string_ = true;
      is_name_ = expects_name_;
      expects_name_ = expects_value_ = after_value_ = false;
      tail_.clear();
      length_ = 0;
      break;
    case '{':
    case '[':
      if (depth() < kMaxDepth) open_.push_back(static_cast<char>(byte));
      expects_name_ = byte == '{';
      expects_value_ = byte == '[';
      after_value_ = false;
      break;
    case '}':
    case ']':
      if (depth() > 0) open_.pop_back();
      expects_name_ = expects_value_ = false;
      after_value_ = true;
      break;
    case ':':
      expects_value_ = true;
      break;
    case ',':
      expects_value_ = in_array();
      expects_name_ = !expects_value_;
      after_value_ = false;
      break;
    default:  // within a number or a literal
      expects_value_ = false;
      after_value_ = true;
  }
}

}  // namespace pagemill
