#include "page_sight.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string>

namespace pagemill {
namespace {

using Words = std::initializer_list<std::string_view>;
using namespace std::string_view_literals;
constexpr auto kNone = std::string_view::npos;
constexpr int kMaxMentions = 24;
// Characters of markup before an id that are looked at.
constexpr size_t kBeforeControlled = 40;
constexpr size_t kBeforeLinked = 220;

char lower(char byte) { return byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte + 32) : byte; }
bool is_space(char byte) { return byte == ' ' || (byte >= '\t' && byte <= '\r'); }
bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }
bool is_small(char byte) { return byte >= 'a' && byte <= 'z'; }
bool is_capital(char byte) { return byte >= 'A' && byte <= 'Z'; }
bool is_quote(char byte) { return byte == '"' || byte == '\''; }
bool is_break(char byte) { return is_space(byte) || byte == '_' || byte == '-'; }
bool is_word(char byte) {
  return is_small(lower(byte)) || is_digit(byte) || byte == '_';
}

// Reads a text from a place on; a step that doesn't fit moves nothing.
class Cursor {
 public:
  explicit Cursor(std::string_view text, size_t at = 0) : text_(text), at_(at) {}

  size_t at() const { return at_; }
  bool done() const { return at_ >= text_.size(); }
  char peek() const { return done() ? '\0' : text_[at_]; }

  template <typename Test>
  bool one(Test test) {
    if (done() || !test(text_[at_])) return false;
    return ++at_, true;
  }
  bool one(char byte) {
    return one([byte](char other) { return other == byte; });
  }
  template <typename Test>
  size_t all(Test test) {
    const size_t before = at_;
    while (one(test)) {
    }
    return at_ - before;
  }
  // `word` is in lower case; the text's case doesn't matter.
  bool word(std::string_view word) {
    if (text_.size() - at_ < word.size()) return false;
    for (size_t i = 0; i < word.size(); ++i) {
      if (lower(text_[at_ + i]) != word[i]) return false;
    }
    return at_ += word.size(), true;
  }
  bool exact(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    return at_ += word.size(), true;
  }
  bool any(Words words) {
    return std::ranges::any_of(words, [this](std::string_view each) { return word(each); });
  }

 private:
  std::string_view text_;
  size_t at_;
};

// Where `word`, in lower case, stands in any case.
size_t find_word(std::string_view text, std::string_view word, size_t at = 0) {
  for (; at + word.size() <= text.size(); ++at) {
    if (lower(text[at]) == word[0] && Cursor(text, at).word(word)) return at;
  }
  return kNone;
}

// A declaration's colon with the white space around it.
bool colon(Cursor& cursor) {
  cursor.all(is_space);
  if (!cursor.one(':')) return false;
  cursor.all(is_space);
  return true;
}

bool hides_from(Cursor cursor) {
  Cursor start = cursor;
  if (cursor.word("display")) return colon(cursor) && cursor.word("none");
  if (cursor.word("visibility")) return colon(cursor) && cursor.any({"hidden", "collapse"});
  if (cursor.any({"font-size", "opacity", "max-height"})) {
    if (!colon(cursor) || !cursor.one('0')) return false;
    Cursor fraction = cursor;
    if (fraction.one('.') && fraction.all([](char byte) { return byte == '0'; }) > 0) {
      cursor = fraction;
    }
    cursor.any({"px", "em", "rem", "pt", "%"});
    cursor.all(is_space);
    return cursor.done() || cursor.peek() == ';' || cursor.peek() == '!';
  }
  cursor = start;
  if (cursor.any({"left", "top", "text-indent"})) {
    return colon(cursor) && cursor.one('-') && cursor.all(is_digit) >= 3;
  }
  if (cursor.word("color")) return colon(cursor) && cursor.word("transparent");
  if (cursor.word("clip-path")) {
    if (!colon(cursor) || !cursor.word("inset(")) return false;
    cursor.all(is_space);
    return cursor.any({"50%", "100%"});
  }
  if (!cursor.word("clip") || !colon(cursor) || !cursor.word("rect(")) return false;
  cursor.all(is_space);
  return cursor.one('0');
}

// A value as written, without white space and "!important", in lower case.
std::string plain_value(std::string_view value) {
  std::string plain;
  for (const char byte : value) {
    if (!is_space(byte)) plain.push_back(lower(byte));
  }
  constexpr std::string_view kImportant = "!important";
  if (plain.ends_with(kImportant)) plain.resize(plain.size() - kImportant.size());
  if (plain == "#fff" || plain == "#ffffff" || plain == "rgb(255,255,255)") return "white";
  if (plain == "#000" || plain == "#000000" || plain == "rgb(0,0,0)") return "black";
  return plain;
}

// Whether text has the colour of what is behind it, or no room at all.
bool is_unseen(std::string_view style) {
  constexpr std::string_view kNames[] = {"color", "background", "background-color", "width",
                                         "height", "overflow"};
  std::optional<std::string> declared[std::size(kNames)];
  for (size_t at = 0; at < style.size();) {
    const bool begins = at == 0 || style[at - 1] == ';' || is_space(style[at - 1]);
    size_t next = at + 1;
    for (size_t i = 0; begins && i < std::size(kNames); ++i) {
      Cursor cursor(style, at);
      if (!cursor.word(kNames[i]) || !colon(cursor)) continue;
      next = std::min(style.find(';', cursor.at()), style.size());
      declared[i] = plain_value(style.substr(cursor.at(), next - cursor.at()));
      break;
    }
    at = next;
  }
  const auto& [colour, background, background_colour, width, height, overflow] = declared;
  const auto& behind = background_colour ? background_colour : background;
  if (colour && behind && !colour->empty() && *colour == *behind) return true;
  const auto is_zero = [](const auto& size) { return size && (*size == "0" || *size == "0px"); };
  return is_zero(width) && is_zero(height) && overflow == "hidden";
}

bool hides(std::string_view style) {
  for (size_t at = 0; at <= style.size(); ++at) {
    const bool begins = at == 0 || style[at - 1] == ';' || is_space(style[at - 1]);
    if (begins && hides_from(Cursor(style, at))) return true;
  }
  return is_unseen(style);
}

// What rotating displays write on slides that wait for their turn.
bool is_slide(std::string_view style) {
  std::string_view rest;
  size_t at = find_word(style, "position");
  for (; at != kNone && rest.data() == nullptr; at = find_word(style, "position", at + 1)) {
    Cursor cursor(style, at + 8);
    if (colon(cursor) && cursor.word("absolute;")) rest = style.substr(cursor.at());
  }
  bool has_corner = false, has_layer = false;
  for (size_t i = 0; i < rest.size() && !(has_corner && has_layer); ++i) {
    Cursor layer(rest, i), corner(rest, i);
    if (layer.any({"z-index", "width"})) {
      layer.all(is_space);
      has_layer = has_layer || layer.one(':');
    }
    if ((i == 0 || !is_word(rest[i - 1])) && corner.any({"top", "left"}) && colon(corner) &&
        corner.one('0')) {
      corner.word("px");
      corner.all(is_space);
      has_corner = has_corner || corner.one(';');
    }
  }
  return has_corner && has_layer;
}

// Whether a name ends here, after a number perhaps.
bool ends_numbered(Cursor cursor) {
  cursor.all(is_digit);
  return cursor.done() || is_break(cursor.peek());
}

bool is_panel_from(const Cursor& start) {
  for (const std::string_view head : {"tab"sv, "accordion"sv, "collapse"sv, "collapsible"sv, "collapsed"sv,
                                      "expandable"sv, "drawer"sv, "toggle"sv}) {
    Cursor cursor = start;
    if (!cursor.word(head)) continue;
    Cursor joined = cursor;
    const bool has_joint = joined.one([](char byte) { return byte == '_' || byte == '-'; });
    for (const Cursor& part : {cursor, joined}) {
      if (ends_numbered(part)) return true;
      for (const std::string_view tail :
           {"content"sv, "panel"sv, "pane"sv, "body"sv, "item"sv, "box"sv, "container"sv}) {
        Cursor end = part;
        if (!end.word(tail)) continue;
        if (ends_numbered(end)) return true;
        if (end.one([](char byte) { return byte == '_' || byte == '-'; }) && ends_numbered(end)) {
          return true;
        }
      }
      if (!has_joint) break;
    }
  }
  return false;
}

bool names_panel(std::string_view names) {
  for (size_t at = 0; at <= names.size(); ++at) {
    if ((at == 0 || is_break(names[at - 1])) && is_panel_from(Cursor(names, at))) return true;
  }
  return false;
}

bool names_dialog(std::string_view names) {
  for (const std::string_view word :
       {"modal"sv, "popup"sv, "pop-up"sv, "overlay"sv, "dialog"sv, "lightbox"sv, "cookie"sv, "consent"sv, "menu"sv,
        "nav"sv, "search"sv, "login"sv, "cart"sv}) {
    if (find_word(names, word) != kNone) return true;
  }
  return false;
}

// The last `most` characters of a text.
std::string_view last_characters(std::string_view text, size_t most) {
  size_t at = text.size();
  for (; at > 0 && most > 0; --most) {
    do {
      --at;
    } while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  }
  return text.substr(at);
}

// A text's last parts, taken off from the right.
struct Tail {
  std::string_view text;

  bool take(std::string_view word) {
    if (!text.ends_with(word)) return false;
    return text.remove_suffix(word.size()), true;
  }
  bool quote() {
    if (text.empty() || !is_quote(text.back())) return false;
    return text.remove_suffix(1), true;
  }
  void spaces() {
    while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  }
  // name = "
  bool opened(std::string_view name) {
    if (!quote()) return false;
    spaces();
    if (!take("=")) return false;
    spaces();
    return take(name);
  }
};

bool ends_with_control(std::string_view before) {
  Tail tail{last_characters(before, kBeforeControlled)};
  return tail.opened("aria-controls") && !tail.text.empty() && is_space(tail.text.back());
}

bool ends_with_link(std::string_view before) {
  Tail tail{last_characters(before, kBeforeLinked)};
  if (!tail.take("#") || !tail.opened("href")) return false;
  const size_t tag = tail.text.find_last_of("<>");
  return tag != kNone && tail.text.substr(tag).starts_with("<a") && tag + 2 < tail.text.size() &&
         is_space(tail.text[tag + 2]);
}

bool is_toggled(Cursor cursor) {
  if (!cursor.one(is_quote)) return false;
  for (const char mark : {')', '.'}) {
    cursor.all(is_space);
    if (!cursor.one(mark)) return false;
  }
  cursor.all(is_space);
  for (const std::string_view name : {"toggle"sv, "slideToggle"sv, "fadeToggle"sv, "slideDown"sv}) {
    Cursor call = cursor;
    if (!call.exact(name)) continue;
    call.all(is_space);
    if (call.one('(')) return true;
  }
  return false;
}

bool ends_menu_name(Cursor cursor) {
  cursor.one(is_digit);
  return cursor.done() || is_break(cursor.peek());
}

bool is_menu_word(const Cursor& start) {
  for (const std::string_view word : {"nav"sv, "navi"sv, "navbar"sv, "navigation"sv, "menu"sv, "menubar"sv}) {
    Cursor cursor = start;
    if (!cursor.exact(word)) continue;
    if (ends_menu_name(cursor)) return true;
    if (cursor.one('s') && ends_menu_name(cursor)) return true;
  }
  return false;
}

bool is_menu_from(const Cursor& start) {
  if ("tmslrgfn_"sv.find(start.peek()) == kNone) return false;  // no name begins otherwise
  for (const std::string_view whole : {"sitemap"sv, "footer"sv}) {
    Cursor cursor = start;
    if (cursor.exact(whole) && ends_menu_name(cursor)) return true;
  }
  for (const std::string_view place : {""sv, "top"sv, "main"sv, "sub"sv, "side"sv, "left"sv, "right"sv, "global"sv,
                                       "site"sv, "mega"sv, "foot"sv, "footer"sv}) {
    Cursor cursor = start;
    if (!cursor.exact(place)) continue;
    if (is_menu_word(cursor)) return true;
    if (cursor.one('_') && is_menu_word(cursor)) return true;
  }
  return false;
}

// topNav, Menu: names in which words begin with capitals.
bool is_capital_menu(std::string_view names) {
  for (const std::string_view word : {"Nav"sv, "Menu"sv, "Navigation"sv}) {
    for (size_t at = names.find(word); at != kNone; at = names.find(word, at + 1)) {
      const size_t end = at + word.size();
      const bool is_last = end == names.size();
      if (at > 0 && is_small(names[at - 1]) &&
          (is_last || is_capital(names[end]) || is_break(names[end]))) {
        return true;
      }
      if (at == 0 && word != "Navigation" && (is_last || is_capital(names[end]))) return true;
    }
  }
  return false;
}

bool names_menu(std::string_view names) {
  for (size_t at = 0; at < names.size(); ++at) {
    if ((at == 0 || is_break(names[at - 1])) && is_menu_from(Cursor(names, at))) return true;
  }
  return is_capital_menu(names);
}

bool is_phrasing(std::string_view tag) {
  for (const std::string_view name : {"a"sv, "abbr"sv, "b"sv, "bdi"sv, "em"sv, "i"sv, "label"sv, "small"sv, "span"sv,
                                      "strong"sv, "sub"sv, "sup"sv, "time"sv}) {
    if (tag == name) return true;
  }
  return false;
}

}  // namespace

bool Sight::is_hidden(std::string_view tag, const SightAttributes& attributes) const {
  if (attributes.aria_hidden == "true" && is_phrasing(tag)) return true;
  if (!attributes.has_hidden && !(attributes.has_style && hides(attributes.style))) return false;
  if (is_panel(attributes)) return false;
  return !is_slide(attributes.style);
}

bool Sight::is_panel(const SightAttributes& attributes) const {
  const std::string_view names = attributes.names, id = attributes.id;
  if (attributes.role == "tabpanel" || names_panel(names) || names_panel(id)) return true;
  if (id.empty() || attributes.role == "dialog" || names_dialog(names) || names_dialog(id)) return false;
  return is_opened(id);
}

bool Sight::is_opened(std::string_view id) const {
  size_t at = source_.find(id);
  for (int i = 0; i < kMaxMentions && at != kNone; ++i, at = source_.find(id, at + 1)) {
    const size_t end = at + id.size();
    const bool is_quoted = end < source_.size() && is_quote(source_[end]);
    const std::string_view before = source_.substr(0, at);
    if (before.ends_with('#')) {
      if (at > 1 && is_quote(source_[at - 2]) && is_toggled(Cursor(source_, end))) return true;
      if (is_quoted && ends_with_link(before)) return true;
    } else if (is_quoted && ends_with_control(before)) {
      return true;
    }
  }
  return false;
}

bool is_struck_style(std::string_view style) {
  if (style.find("line-through") == kNone) return false;
  constexpr std::string_view kProperty = "text-decoration";
  for (size_t at = find_word(style, kProperty); at != kNone;
       at = find_word(style, kProperty, at + 1)) {
    Cursor cursor(style, at + kProperty.size());
    cursor.all([](char byte) { return is_small(lower(byte)) || byte == '-'; });
    cursor.all(is_space);
    if (!cursor.one(':')) continue;
    const std::string_view value = style.substr(cursor.at());
    if (find_word(value.substr(0, value.find(';')), "line-through") != kNone) return true;
  }
  return false;
}

bool is_menu(const SightAttributes& attributes) {
  const std::string_view role = attributes.role;
  if (role == "navigation" || role == "menu" || role == "menubar") return true;
  return names_menu(attributes.names) || names_menu(attributes.id);
}

bool is_spoken_only(std::string_view names) {
  const auto is_name = [](std::string_view name) {
    Cursor cursor(name);
    if (cursor.any({"sr-only", "a-offscreen", "u-hiddenvisually"})) return cursor.done();
    if (cursor.word("visually")) {
      cursor.one('-');
      return cursor.word("hidden") && cursor.done();
    }
    if (!cursor.word("screen")) return false;
    cursor.one('-');
    if (!cursor.word("reader")) return false;
    cursor.any({"-text", "-only"});
    return cursor.done();
  };
  Cursor cursor(names);
  while (!cursor.done()) {
    cursor.all(is_space);
    const size_t begin = cursor.at();
    cursor.all([](char byte) { return !is_space(byte); });
    if (is_name(names.substr(begin, cursor.at() - begin))) return true;
  }
  return false;
}

bool is_file_name(std::string_view text) {
  for (const std::string_view end : {".jpeg"sv, ".jpg"sv, ".png"sv, ".gif"sv, ".webp"sv, ".svg"sv, ".avif"sv}) {
    if (text.size() >= end.size() && Cursor(text, text.size() - end.size()).word(end)) return true;
  }
  return false;
}

}  // namespace pagemill
