#include "page_text.h"

#include <time.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <unordered_map>
#include <vector>

#include "page_markup.h"
#include "page_sight.h"

namespace pagemill {
namespace {

constexpr int64_t kNodesBetweenChecks = 4096;
constexpr uint32_t kMaxAlternative = 80;
constexpr size_t kMaxOptions = 12;
// Of an attribute so many bytes are looked at.
constexpr size_t kMaxRuled = 2000;

enum class Role : uint8_t {
  kInline,  // its words flow on
  kUnseen,
  kDialog,
  kBreak,
  kImage,
  kInput,
  kSelect,
  kBlock,
  kHeading,
  kItem,
  kRow,
  kCell,
  kTerm,
  kDefinition,
  kStruck,
  kRaised,
  kSeparate,
  kLink,
};

// What is to be done when an element ends.
enum class Close : uint8_t {
  kNothing, kLine, kBlock, kCell, kRow, kTerm, kStruck, kSeparate, kMenu, kLink, kSkipped,
  kOption, kSelect,
};

struct Element {
  Role role = Role::kInline;
  bool may_navigate = false;
  uint8_t level = 0;
};

using Elements = std::unordered_map<std::string_view, Element>;

Elements make_elements() {
  Elements elements;
  const auto mark = [&](Role role, std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) elements[name].role = role;
  };
  mark(Role::kBlock,
       {"address", "article", "aside",  "blockquote", "body",    "caption",    "center", "details",
        "dir",     "div",     "dl",     "fieldset",   "figcaption", "figure",  "footer", "form",
        "header",  "hgroup",  "hr",     "html",       "legend",  "main",       "menu",   "nav",
        "ol",      "optgroup", "p",     "pre",        "search",  "section",    "summary", "table",
        "tbody",   "tfoot",   "thead",  "ul",         "title",   "item",       "entry",  "channel"});
  mark(Role::kUnseen, {"script", "style", "template", "noscript", "head", "svg", "canvas", "iframe",
                       "object", "audio", "video", "datalist", "map", "frameset", "textarea"});
  mark(Role::kStruck, {"del", "s", "strike"});
  mark(Role::kSeparate, {"button", "label", "option", "rt"});
  mark(Role::kCell, {"td", "th"});
  const std::pair<std::string_view, Role> single[] = {
      {"dialog", Role::kDialog}, {"br", Role::kBreak}, {"img", Role::kImage},
      {"input", Role::kInput}, {"select", Role::kSelect}, {"li", Role::kItem},
      {"tr", Role::kRow}, {"dt", Role::kTerm}, {"dd", Role::kDefinition},
      {"sup", Role::kRaised}, {"a", Role::kLink}};
  for (const auto& [name, role] : single) elements[name].role = role;
  constexpr std::string_view kHeadings[] = {"h1", "h2", "h3", "h4", "h5", "h6"};
  for (uint8_t i = 0; i < 6; ++i) {
    elements[kHeadings[i]] = {Role::kHeading, false, std::min<uint8_t>(i, 2)};
  }
  for (const std::string_view name : {"nav", "div", "ul", "ol", "dl", "table", "tbody",
                                      "section", "header", "footer", "aside"}) {
    elements[name].may_navigate = true;
  }
  return elements;
}

const Element& element_of(std::string_view name) {
  static const Elements elements = make_elements();
  static const Element other;
  const auto found = elements.find(name);
  return found == elements.end() ? other : found->second;
}

bool equals_in_any_case(std::string_view text, std::string_view word) {
  return std::ranges::equal(text, word, [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b;
  });
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Text in which elements of both namespaces may stand.
bool takes_html(std::string_view name) {
  for (const std::string_view each : {"foreignObject", "desc", "title", "mi", "mo", "mn", "ms",
                                      "mtext", "annotation-xml"}) {
    if (name == each) return true;
  }
  return false;
}

class Walk {
 public:
  Walk(std::string_view markup, std::string_view source, const Characters& characters,
       const PageTextLimits& limits, bool menus)
      : reader_(markup), sight_(source), characters_(characters), limits_(limits),
        ends_(thread_seconds() + limits.max_seconds), writer_(characters, menus) {}

  PageTextOutcome run(VisibleText& found);

 private:
  struct Open {
    std::string_view name;
    Close close = Close::kNothing;
    bool is_foreign = false;  // what stands in it
    std::string_view address;
    size_t option = 0;
  };
  struct Option {
    size_t begin = 0, end = 0;  // in option_text_
    bool is_selected = false;
  };

  void start(std::string_view name);
  void end();
  bool count_node();
  void text(const MarkupEvent& event);
  Close enter(std::string_view name, std::string_view& address);
  Close begin(const Element& element, std::string_view& address);
  SightAttributes sight_attributes();
  void image();
  void input();
  void leave(const Open& open);
  void show_options();
  bool is_late() { return outcome_ == PageTextOutcome::kTooSlow || thread_seconds() > ends_; }

  // An attribute's value, for as long as no other is asked for.
  std::string_view value(std::string_view name) {
    const std::string_view* found = reader_.find(name);
    return found ? decoded_entities(*found, value_buffer_) : std::string_view{};
  }

  MarkupReader reader_;
  Sight sight_;
  const Characters& characters_;
  PageTextLimits limits_;
  double ends_;
  TextWriter writer_;
  PageTextOutcome outcome_ = PageTextOutcome::kDone;
  std::vector<Open> open_;
  int64_t nodes_ = 0;
  size_t skipped_ = 0;    // open elements out of sight, from the outermost on
  size_t select_at_ = 0;  // open elements when a <select> began; 0: none is open
  size_t templates_ = 0;  // within it
  std::vector<Option> options_;
  std::string option_text_;
  std::string text_buffer_, value_buffer_, style_, names_, id_;
};

PageTextOutcome Walk::run(VisibleText& found) {
  using enum MarkupEvent::Kind;
  for (;;) {
    const MarkupEvent event = reader_.next();
    switch (event.kind) {
      case kFinished:
        if (!open_.empty()) return PageTextOutcome::kUnsure;
        found = writer_.finish();
        return PageTextOutcome::kDone;
      case kUnsure:
        return PageTextOutcome::kUnsure;
      case kEnd:
        if (open_.empty() || open_.back().name != event.text) return PageTextOutcome::kUnsure;
        end();
        break;
      default:
        if (skipped_ == 0 && !count_node()) return outcome_;
        if (event.kind == kStart) start(event.text);
        if (event.kind == kText) text(event);
    }
    if (outcome_ != PageTextOutcome::kDone) return outcome_;
  }
}

bool Walk::count_node() {
  if (++nodes_ % kNodesBetweenChecks != 0) return true;
  if (is_late()) outcome_ = PageTextOutcome::kTooSlow;
  else if (nodes_ > limits_.max_nodes) outcome_ = PageTextOutcome::kTooManyNodes;
  return outcome_ == PageTextOutcome::kDone;
}

void Walk::text(const MarkupEvent& event) {
  if (skipped_ > 0 && (select_at_ == 0 || templates_ > 0)) return;
  const std::string_view text =
      event.is_raw ? event.text : decoded_entities(event.text, text_buffer_);
  if (skipped_ == 0) {
    writer_.words(text);
  } else {
    option_text_ += text;
  }
}

void Walk::start(std::string_view name) {
  Open open;
  open.name = name;
  const bool is_within_foreign = !open_.empty() && open_.back().is_foreign;
  open.is_foreign = name == "svg" || name == "math" || (is_within_foreign && !takes_html(name));
  if (skipped_ == 0) {
    open.close = enter(name, open.address);
    if (open.close == Close::kSkipped) skipped_ = open_.size() + 1;
    if (open.close == Close::kSelect) {
      skipped_ = select_at_ = open_.size() + 1;
      options_.clear();
      option_text_.clear();
    }
  } else if (select_at_ > 0) {
    if (name == "template") ++templates_;
    if (name == "option" && templates_ == 0) {
      open.close = Close::kOption;
      open.option = options_.size();
      options_.push_back({option_text_.size(), option_text_.size(), reader_.find("selected") != nullptr});
    }
  }
  open_.push_back(open);
  if (!is_within_foreign && is_void_element(name)) end();
}

void Walk::end() {
  const Open open = open_.back();
  open_.pop_back();
  if (open.close == Close::kOption) options_[open.option].end = option_text_.size();
  if (select_at_ > 0 && skipped_ == select_at_ && open.name == "template") --templates_;
  if (skipped_ > 0 && open_.size() >= skipped_) return;
  skipped_ = 0;
  leave(open);
}

SightAttributes Walk::sight_attributes() {
  SightAttributes found;
  for (const MarkupAttribute& attribute : reader_.attributes()) {
    const auto ruled = [&](std::string& buffer) {
      return decoded_entities(attribute.value.substr(0, kMaxRuled), buffer);
    };
    if (attribute.name == "class") {
      found.has_class = true;
      found.names = ruled(names_);
    } else if (attribute.name == "id") {
      found.id = ruled(id_);
    } else if (attribute.name == "style") {
      found.has_style = true;
      found.style = ruled(style_);
    } else if (attribute.name == "hidden") {
      found.has_hidden = true;
    } else if (attribute.name == "open") {
      found.is_open = true;
    } else if (attribute.name == "role") {
      found.role = attribute.value;
    } else if (attribute.name == "aria-hidden") {
      found.aria_hidden = attribute.value;
    }
  }
  return found;
}

Close Walk::enter(std::string_view name, std::string_view& address) {
  const Element* element = &element_of(name);
  if (element->role == Role::kUnseen) return Close::kSkipped;
  SightAttributes attributes;
  if (!reader_.attributes().empty()) {
    attributes = sight_attributes();
    if (attributes.has_style || attributes.has_hidden || !attributes.aria_hidden.empty()) {
      const bool is_hidden = sight_.is_hidden(name, attributes);
      if ((attributes.has_style || attributes.has_hidden) && !attributes.id.empty() && is_late()) {
        outcome_ = PageTextOutcome::kTooSlow;
      }
      if (is_hidden) return Close::kSkipped;
    }
  }
  if (element->role == Role::kDialog && !attributes.is_open) return Close::kSkipped;
  if (attributes.has_style && element->role != Role::kStruck && is_struck_style(attributes.style)) {
    name = "s";
    element = &element_of(name);
  }
  if (name != "s" && attributes.has_class && is_spoken_only(attributes.names)) {
    writer_.separate();
    return Close::kSeparate;
  }
  if (element->may_navigate && (name == "nav" || is_menu(attributes))) {
    writer_.end_line();
    writer_.start_menu();
    return Close::kMenu;
  }
  return begin(*element, address);
}

Close Walk::begin(const Element& element, std::string_view& address) {
  static constexpr std::string_view kHashes[] = {"# ", "## ", "### "};
  switch (element.role) {
    case Role::kBreak:
      writer_.end_line();
      return Close::kSkipped;
    case Role::kImage:
      image();
      return Close::kSkipped;
    case Role::kInput:
      input();
      return Close::kSkipped;
    case Role::kSelect:
      return Close::kSelect;
    case Role::kBlock:
    case Role::kDialog:
      writer_.end_line();
      return Close::kLine;
    case Role::kHeading:
      writer_.start_block(kHashes[element.level]);
      return Close::kBlock;
    case Role::kItem:
      writer_.start_block("- ");
      return Close::kBlock;
    case Role::kRow:
      writer_.start_row();
      return Close::kRow;
    case Role::kCell:
      writer_.start_cell();
      return Close::kCell;
    case Role::kTerm:
      writer_.start_block();
      return Close::kTerm;
    case Role::kDefinition:
      writer_.end_line();
      return Close::kBlock;
    case Role::kStruck:
      writer_.start_struck();
      return Close::kStruck;
    case Role::kRaised:
      if (writer_.ends_with_digit()) writer_.separate();
      return Close::kNothing;
    case Role::kSeparate:
      writer_.separate();
      return Close::kSeparate;
    case Role::kLink:
      writer_.start_link();
      if (const std::string_view* href = reader_.find("href")) address = *href;
      return Close::kLink;
    default:
      return Close::kNothing;
  }
}

void Walk::leave(const Open& open) {
  switch (open.close) {
    case Close::kLine:
      return writer_.end_line();
    case Close::kBlock:
      return writer_.start_block();
    case Close::kCell:
      return writer_.end_cell();
    case Close::kRow:
      return writer_.end_row();
    case Close::kTerm:
      return writer_.join_next(": ");
    case Close::kStruck:
      return writer_.end_struck();
    case Close::kSeparate:
      return writer_.separate();
    case Close::kMenu:
      writer_.end_line();
      return writer_.end_menu();
    case Close::kLink: {
      const std::string_view address = decoded_entities(open.address, value_buffer_);
      const bool leads_away = !address.empty() && !address.starts_with('#') &&
                              !address.starts_with("javascript:");
      if (leads_away) writer_.end_link(address);
      return;
    }
    case Close::kSelect:
      return show_options();
    default:
      return;
  }
}

void Walk::image() {
  // As the writer joins words, but with all characters kept.
  const std::string_view written = value("alt");
  std::string alt;
  bool has_letter = false, is_pending = false;
  uint32_t chars = 0;
  for (CodePoints points(written); !points.done();) {
    const size_t at = points.at();
    const uint32_t code = points.next();
    if (characters_.is_space(code)) {
      is_pending = !alt.empty();
      continue;
    }
    if (is_pending) alt.push_back(' '), ++chars;
    is_pending = false;
    has_letter = has_letter || characters_.is_letter(code);
    alt.append(written, at, points.at() - at);
    if (++chars > kMaxAlternative) return;
  }
  if (has_letter && !is_file_name(alt)) writer_.alternative(alt);
}

void Walk::input() {
  const std::string_view type = value("type");
  if (!equals_in_any_case(type, "submit") && !equals_in_any_case(type, "button") &&
      !equals_in_any_case(type, "reset")) {
    return;
  }
  writer_.separate();
  writer_.words(value("value"));
  writer_.separate();
}

// A short list of choices is shown whole; of a long one, what is chosen.
void Walk::show_options() {
  select_at_ = templates_ = 0;
  const bool is_long = options_.size() > kMaxOptions;
  bool is_first = true;
  for (const Option& option : options_) {
    if (is_long && !option.is_selected) continue;
    if (!is_first) writer_.made("/");
    writer_.separate();
    writer_.words(std::string_view(option_text_).substr(option.begin, option.end - option.begin));
    if (is_long) break;
    is_first = false;
  }
  writer_.separate();
}

}  // namespace

PageTextOutcome visible_text(std::string_view markup, std::string_view source,
                             const Characters& characters, const PageTextLimits& limits,
                             bool menus, VisibleText& found) {
  return Walk(markup, source, characters, limits, menus).run(found);
}

}  // namespace pagemill
