// Where an output stands within the JSON text that it is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pagemill {

// Follows a JSON text byte by byte: whether a string is open and what it holds so far, the last
// key, what is expected next. Takes the text to be legal, as grammars see to it; on anything else
// it goes on with some state of its own. A small value, copied to look ahead.
class JsonCursor {
 public:
  void push(uint8_t byte);

  bool in_string() const { return in_string_; }

  // A string is open that is a value, not a member's name.
  bool in_value_string() const { return in_string_ && !is_name_; }

  // A value may start here: after a name, or in an array.
  bool at_value() const { return !in_string_ && expects_value_; }

  // Directly after a whole element of an array, or a string in one.
  bool after_element() const { return !in_string_ && after_value_ && in_array(); }

  bool in_array() const { return depth() > 0 && open_.back() == '['; }

  // The last bytes of the open (or latest) string, escapes resolved; at most kMaxTail of them.
  std::string_view tail() const { return tail_; }

  // Whether the open string is empty so far.
  bool is_empty() const { return length_ == 0; }

  // The member that the value belongs to, or the array around it.
  std::string_view name() const { return name_; }

  static constexpr size_t kMaxTail = 64;
  static constexpr size_t kMaxDepth = 64;

 private:
  size_t depth() const { return open_.size(); }
  void put(uint8_t byte);
  void put_code_point(uint32_t code_point);
  void in_string(uint8_t byte);

  std::string open_;  // brackets around the place
  std::string tail_;
  std::string name_;
  int64_t length_ = 0;
  uint32_t hex_ = 0;
  int8_t hex_left_ = 0;
  bool in_string_ = false;
  bool is_name_ = false;
  bool escaped_ = false;
  bool expects_value_ = true;
  bool expects_name_ = false;
  bool after_value_ = false;
};

}  // namespace pagemill
