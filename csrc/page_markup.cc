#include "page_markup.h"

#include <algorithm>
#include <array>

namespace pagemill {
namespace {

constexpr auto kNone = std::string_view::npos;
constexpr std::array<std::string_view, 18> kVoid = {
    "area", "base",  "basefont", "bgsound", "br",    "col",   "embed",  "frame", "hr",
    "img",  "input", "keygen",   "link",    "meta",  "param", "source", "track", "wbr"};
// <plaintext> is missing: nothing ends it.
constexpr std::array<std::string_view, 7> kRaw = {"script", "style",    "noscript", "iframe",
                                                  "xmp",    "noembed", "noframes"};

template <size_t n>
bool is_one_of(const std::array<std::string_view, n>& names, std::string_view name) {
  return std::ranges::any_of(names, [name](std::string_view each) {
    return each.size() == name.size() && each[0] == name[0] && each == name;
  });
}

struct Entity {
  std::string_view written, meant;
};
constexpr std::array<Entity, 5> kEntities = {{{"&amp;", "&"},
                                              {"&lt;", "<"},
                                              {"&gt;", ">"},
                                              {"&quot;", "\""},
                                              {"&nbsp;", "\xC2\xA0"}}};

bool ends_name(char byte) {
  return byte == '>' || byte == '/' || byte == ' ' || byte == '\t' || byte == '\n' ||
         byte == '\r' || byte == '\f';
}

// Whether `word` stands at a place in any case, and ends there as a tag's name does.
bool has_name(std::string_view text, size_t at, std::string_view word) {
  if (text.size() - at <= word.size() || !ends_name(text[at + word.size()])) return false;
  for (size_t i = 0; i < word.size(); ++i) {
    const char byte = text[at + i];
    if ((byte >= 'A' && byte <= 'Z' ? byte + 32 : byte) != word[i]) return false;
  }
  return true;
}

MarkupEvent event(MarkupEvent::Kind kind, std::string_view text = {}) { return {kind, text, false}; }

}  // namespace

const std::string_view* MarkupReader::find(std::string_view name) const {
  for (const MarkupAttribute& attribute : attributes_) {
    if (attribute.name == name) return &attribute.value;
  }
  return nullptr;
}

MarkupEvent MarkupReader::next() {
  using enum MarkupEvent::Kind;
  if (!raw_.empty()) {
    const MarkupEvent text = raw_text();
    if (!text.text.empty()) return text;
  }
  if (at_ >= html_.size()) return event(kFinished);
  if (html_[at_] != '<') {
    const size_t begin = at_;
    at_ = std::min(html_.find('<', at_), html_.size());
    return event(kText, html_.substr(begin, at_ - begin));
  }
  const std::string_view rest = html_.substr(at_);
  if (rest.starts_with("</")) {
    const size_t end = html_.find('>', at_);
    if (end == kNone) return event(kUnsure);
    const std::string_view name = html_.substr(at_ + 2, end - at_ - 2);
    at_ = end + 1;
    return event(kEnd, name);
  }
  if (rest.starts_with("<!") || rest.starts_with("<?")) {
    const bool is_comment = rest.starts_with("<!--");
    const size_t end = is_comment ? html_.find("-->", at_ + 4) : html_.find('>', at_);
    if (end == kNone) return event(kUnsure);
    at_ = end + (is_comment ? 3 : 1);
    return event(kNothing);
  }
  return start_tag();
}

MarkupEvent MarkupReader::start_tag() {
  const MarkupEvent unsure = event(MarkupEvent::Kind::kUnsure);
  attributes_.clear();
  const size_t begin = at_ + 1;
  size_t at = begin;
  while (at < html_.size() && html_[at] != ' ' && html_[at] != '>') ++at;
  const std::string_view name = html_.substr(begin, at - begin);
  while (at < html_.size() && html_[at] == ' ') {
    const size_t equals = html_.find('=', at + 2);  // the first character may be one
    if (equals == kNone || equals + 1 >= html_.size() || html_[equals + 1] != '"') return unsure;
    const size_t quote = html_.find('"', equals + 2);
    if (quote == kNone) return unsure;
    attributes_.push_back({html_.substr(at + 1, equals - at - 1),
                           html_.substr(equals + 2, quote - equals - 2)});
    at = quote + 1;
  }
  if (at >= html_.size() || html_[at] != '>' || name.empty() || name == "plaintext") return unsure;
  at_ = at + 1;
  if (is_one_of(kRaw, name)) raw_ = name;
  return event(MarkupEvent::Kind::kStart, name);
}

MarkupEvent MarkupReader::raw_text() {
  const std::string_view name = raw_;
  raw_ = {};
  size_t end = at_;
  if (name == "script") {
    end = end_of_script();
  } else {
    do {
      end = html_.find("</", end);
    } while (end != kNone && !has_name(html_, (end += 2), name));
    if (end != kNone) end -= 2;
  }
  const size_t begin = at_;
  at_ = std::min(end, html_.size());
  return {MarkupEvent::Kind::kText, html_.substr(begin, at_ - begin), true};
}

// HTML standard, 13.2.5.15 to 13.2.5.31: after "<!--" a script within the script hides its end tag.
size_t MarkupReader::end_of_script() const {
  bool is_escaped = false, is_doubly_escaped = false;
  for (size_t at = at_; at < html_.size(); ++at) {
    if (!is_escaped) at = html_.find('<', at);
    if (at == kNone) return kNone;
    const std::string_view rest = html_.substr(at);
    if (is_escaped && html_[at] == '-' && rest.starts_with("-->")) {
      is_escaped = is_doubly_escaped = false;
    } else if (html_[at] != '<') {
      continue;
    } else if (!is_escaped && rest.starts_with("<!--")) {
      is_escaped = true;
      ++at;  // its dashes may be those of the end too
    } else if (rest.starts_with("</") && has_name(html_, at + 2, "script")) {
      if (!is_doubly_escaped) return at;
      is_doubly_escaped = false;
    } else if (is_escaped && has_name(html_, at + 1, "script")) {
      is_doubly_escaped = true;
    }
  }
  return kNone;
}

std::string_view decoded_entities(std::string_view written, std::string& buffer) {
  size_t at = written.find('&');
  if (at == kNone) return written;
  buffer.clear();
  size_t copied = 0;
  for (; at != kNone; at = written.find('&', at + 1)) {
    const std::string_view rest = written.substr(at);
    for (const Entity& entity : kEntities) {
      if (!rest.starts_with(entity.written)) continue;
      buffer.append(written, copied, at - copied).append(entity.meant);
      copied = at + entity.written.size();
      break;
    }
  }
  buffer.append(written, copied);
  return buffer;
}

bool is_void_element(std::string_view name) {
  return !name.empty() && is_one_of(kVoid, name);
}

}  // namespace pagemill
