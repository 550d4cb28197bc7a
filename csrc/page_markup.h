// Markup as an HTML parser writes it after repair, read from left to right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pagemill {

struct MarkupAttribute {
  std::string_view name;
  std::string_view value;  // entities as written
};

// What stands next: a start or end tag, text, or what holds nothing (a comment, a doctype).
struct MarkupEvent {
  enum class Kind : uint8_t { kStart, kEnd, kText, kNothing, kFinished, kUnsure };
  Kind kind = Kind::kFinished;
  std::string_view text;  // of text, entities as written; of tags their name
  bool is_raw = false;    // text without entities
};

// Takes what the standard's "serializing HTML fragments" gives: tags are balanced but for void
// elements, attributes quoted, `&`, `<`, `>`, `"` and no-break spaces written as entities outside of
// raw text (scripts, styles and the like). One pass, no recursion; views lie in `html`.
//
// Raw text has no entities, so markup can be thought up in which its end can't be told. kUnsure
// says so where a tag has not the form that it must have; where an end tag isn't that of the
// element which is open, the caller notices.
class MarkupReader {
 public:
  explicit MarkupReader(std::string_view html) : html_(html) {}

  // The next event; after kFinished or kUnsure always the same.
  MarkupEvent next();

  // Attributes of the last start tag.
  const std::vector<MarkupAttribute>& attributes() const { return attributes_; }

  // Value of an attribute of the last start tag, or nullptr.
  const std::string_view* find(std::string_view name) const;

 private:
  MarkupEvent start_tag();
  MarkupEvent raw_text();
  size_t end_of_script() const;

  std::string_view html_;
  size_t at_ = 0;
  std::string_view raw_;  // the element of raw text whose start tag was last
  std::vector<MarkupAttribute> attributes_;
};

// `written` with the serializer's entities decoded; kept in `buffer` where there are any.
std::string_view decoded_entities(std::string_view written, std::string& buffer);

// Whether an element in HTML's namespace has no content and no end tag.
bool is_void_element(std::string_view name);

}  // namespace pagemill
