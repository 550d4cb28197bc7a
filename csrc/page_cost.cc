#include "page_cost.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <unordered_map>

namespace pagemill {
namespace {

// Attribute text is read once on most pages that aren't made to be slow, and up to three times where
// scripts write markup with quotes in it.
constexpr int64_t kMaxReads = 8;
// Tags with less text than this have few attributes.
constexpr size_t kShortTag = 128;
constexpr size_t kLongestName = 12;

struct Element {
  bool is_void = false;        // never open
  bool is_never_deep = false;  // never open, or closed by the next of its kind
  bool is_formatting = false;  // opened again in the next block
};

using Elements = std::unordered_map<std::string, Element>;

void mark(Elements& elements, bool Element::*flag, std::initializer_list<const char*> names) {
  for (const char* name : names) elements[name].*flag = true;
}

Elements make_elements() {
  Elements elements;
  mark(elements, &Element::is_void,
       {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param",
        "source", "track", "wbr"});
  for (auto& [name, element] : elements) element.is_never_deep = true;
  mark(elements, &Element::is_never_deep,
       {"body", "html",   "head",  "title", "script", "style",    "textarea", "p",     "li",
        "dt",   "dd",     "tr",    "td",    "th",     "option",   "optgroup", "thead", "tbody",
        "tfoot", "colgroup", "caption", "rt", "rp",   "image",    "frame",    "keygen", "nobr",
        "a",    "button"});
  mark(elements, &Element::is_formatting,
       {"a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt",
        "u"});
  return elements;
}

const Element& element_of(std::string_view name) {
  static const Elements elements = make_elements();
  static const Element other;
  if (name.size() > kLongestName) return other;
  std::string lower(name);
  for (char& byte : lower) {
    if (byte >= 'A' && byte <= 'Z') byte = static_cast<char>(byte + 32);
  }
  const auto found = elements.find(lower);
  return found == elements.end() ? other : found->second;
}

bool is_letter(char byte) { return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z'); }

bool is_name(char byte) {
  return is_letter(byte) || (byte >= '0' && byte <= '9') || byte == ':' || byte == '-';
}

bool is_space(char byte) {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r' || byte == '\f';
}

// Depth of what is open; a closing tag without an opening one is nothing.
class Depth {
 public:
  void step(bool counts, bool closes) {
    if (counts) open_ = std::max<int64_t>(0, open_ + (closes ? -1 : 1));
  }
  int64_t open() const { return open_; }

 private:
  int64_t open_ = 0;
};

// Reads the attributes of one tag.
class Attributes {
 public:
  Attributes(std::string_view html, size_t at) : html_(html), at_(at) {}

  // The place where the tag ends; `count()` is complete then.
  size_t read() {
    skip([](char byte) { return !is_space(byte) && byte != '/' && byte != '>'; });
    for (;;) {
      skip([](char byte) { return is_space(byte) || byte == '/'; });
      if (at_ >= html_.size() || html_[at_] == '>') return at_;
      ++count_;
      name();
      value();
    }
  }

  int64_t count() const { return count_; }

 private:
  template <typename Test>
  void skip(Test test) {
    while (at_ < html_.size() && test(html_[at_])) ++at_;
  }

  void name() {
    if (html_[at_] == '=') ++at_;
    skip([](char byte) { return !is_space(byte) && byte != '/' && byte != '>' && byte != '='; });
  }

  // The value after `=`, if there is one: there alone quotes hold anything.
  void value() {
    const size_t before = at_;
    skip(is_space);
    if (at_ >= html_.size() || html_[at_] != '=') {
      at_ = before;
      return;
    }
    ++at_;
    skip(is_space);
    if (at_ >= html_.size() || html_[at_] == '>') return;
    const char quote = html_[at_];
    if (quote == '"' || quote == '\'') {
      const size_t end = html_.find(quote, at_ + 1);
      at_ = end == std::string_view::npos ? html_.size() : end + 1;
    } else {
      skip([](char byte) { return !is_space(byte) && byte != '>'; });
    }
  }

  std::string_view html_;
  size_t at_;
  int64_t count_ = 0;
};

}  // namespace

PageCost page_cost(std::string_view html) {
  PageCost cost;
  Depth deep, foreign, formatting;
  int64_t reads = kMaxReads * static_cast<int64_t>(html.size());
  for (size_t at = html.find('<'); at != std::string_view::npos; at = html.find('<', at + 1)) {
    const bool closes = at + 1 < html.size() && html[at + 1] == '/';
    const size_t begin = at + 1 + (closes ? 1 : 0);
    if (begin >= html.size() || !is_letter(html[begin])) continue;
    size_t end = begin + 1;
    while (end < html.size() && is_name(html[end])) ++end;
    const Element& element = element_of(html.substr(begin, end - begin));
    deep.step(!element.is_never_deep, closes);
    foreign.step(!element.is_void, closes);
    formatting.step(element.is_formatting, closes);
    cost.open_elements += deep.open();
    cost.open_elements_foreign += foreign.open();
    if (!element.is_formatting) cost.reopened += formatting.open();
    if (closes || cost.is_overlapping) continue;
    Attributes attributes(html, begin + 1);
    const auto length = static_cast<int64_t>(attributes.read() - begin - 1);
    reads -= length;
    cost.is_overlapping = reads < 0;
    if (!cost.is_overlapping && static_cast<size_t>(length) > kShortTag) {
      cost.max_attributes = std::max(cost.max_attributes, attributes.count());
      cost.attribute_pairs += attributes.count() * attributes.count();
    }
  }
  return cost;
}

}  // namespace pagemill
