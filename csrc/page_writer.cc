#include "page_writer.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "page_repeats.h"

namespace pagemill {
namespace {

constexpr size_t kChunk = 1 << 16;
// A row longer than this is layout, not data.
constexpr size_t kMaxRowChars = 600;
constexpr size_t kMaxCellLines = 4;
// A longer text of an image describes what is on it.
constexpr int kMaxNameWords = 6;
constexpr TextPart kSpace{" "};

// Marks that print nothing.
bool is_invisible(uint32_t code) {
  if (code < 0x80) return code < 9 || (code > 13 && code < 28) || code == 0x7F;
  return (code < 0xA0 && code != 0x85) || code == 0xAD || code == 0x200B || code == 0x200E ||
         code == 0x200F || (code >= 0x202A && code <= 0x202E) ||
         (code >= 0x2060 && code <= 0x2069 && code != 0x2065) || code == 0xFEFF;
}

bool is_data_row(const std::vector<TextLines>& cells) {
  if (cells.size() == 1) return false;
  size_t chars = 0;
  for (const TextLines& cell : cells) {
    if (cell.size() > kMaxCellLines) return false;
    for (const TextLine& line : cell) {
      for (const TextPart& part : line) chars += count_code_points(part.text);
      if (chars > kMaxRowChars) return false;
    }
  }
  return true;
}

}  // namespace

char* TextArena::take(size_t size) {
  if (size > left_) {
    left_ = std::max(size, kChunk);
    chunks_.push_back(std::make_unique_for_overwrite<char[]>(left_));
    next_ = chunks_.back().get();
  }
  char* taken = next_;
  next_ += size;
  left_ -= size;
  return taken;
}

std::string_view TextArena::keep(std::string_view text) {
  char* taken = take(text.size());
  if (!text.empty()) std::memcpy(taken, text.data(), text.size());
  return {taken, text.size()};
}

TextWriter::TextWriter(const Characters& characters, bool keeps_menus)
    : characters_(characters), keeps_menus_(keeps_menus), frames_(1) {}

void TextWriter::words(std::string_view text) {
  char* const begin = arena_.take(text.size());
  char* out = begin;
  bool any = false, begins_spaced = false, is_spaced = false;
  for (CodePoints points(text); !points.done();) {
    const size_t at = points.at();
    const uint32_t code = points.next();
    if (is_invisible(code)) continue;
    is_spaced = characters_.is_space(code);
    if (!any) begins_spaced = is_spaced;
    any = true;
    if (is_spaced) {
      // Held back by one: a space stands only between words.
      if (out != begin && out[-1] != ' ') *out++ = ' ';
    } else {
      std::memcpy(out, text.data() + at, points.at() - at);
      out += points.at() - at;
    }
  }
  if (out != begin && out[-1] == ' ') --out;
  const auto size = static_cast<size_t>(out - begin);
  arena_.shrink(text.size() - size);
  if (size == 0) {
    top().space = top().space || any;
    return;
  }
  open(begins_spaced);
  const std::string_view joined{begin, size};
  top().line.push_back({joined, add_source(text)});
  seen_.insert(joined);
  top().space = is_spaced;
}

int32_t TextWriter::add_source(std::string_view text) {
  sources_.push_back(arena_.keep(text));
  return static_cast<int32_t>(sources_.size() - 1);
}

void TextWriter::made(std::string_view text, bool spaced) {
  open(spaced);
  top().line.push_back({text});
}

void TextWriter::open(bool spaced) {
  Frame& frame = top();
  if (!frame.line.empty()) {
    if (!frame.glue.empty()) {
      frame.line.push_back({frame.glue});
    } else if (spaced || frame.space) {
      frame.line.push_back(kSpace);
    }
  } else if (!frame.prefix.empty()) {
    frame.line.push_back({frame.prefix});
  }
  frame.glue = frame.prefix = {};
  frame.space = false;
  if (!mark_.empty()) frame.line.push_back({std::exchange(mark_, {})});
}

void TextWriter::end_line() {
  Frame& frame = top();
  if (frame.line.empty() || !frame.glue.empty()) return;
  if (frame.only_link == frame.line.size()) frame.line.erase(frame.line.begin());
  frame.only_link = 0;
  if (menus_ > 0) frame.line.push_back(kInMenu);
  frame.lines.emplace_back(frame.line);
  frame.line.clear();
  frame.space = false;
}

void TextWriter::start_block(std::string_view prefix) {
  top().glue = {};
  end_line();
  top().prefix = prefix;
}

void TextWriter::join_next(std::string_view glue) {
  Frame& frame = top();
  if (frame.line.empty()) return;
  frame.glue = frame.line.back().text.ends_with(':') ? kSpace.text : glue;
}

void TextWriter::start_struck() {
  top().space = true;
  mark_ = "~~";
}

void TextWriter::end_struck() {
  if (!mark_.empty()) {
    mark_ = {};  // nothing was written
  } else if (!top().line.empty()) {
    top().line.push_back({"~~"});
  }
  separate();
}

bool TextWriter::ends_with_digit() const {
  const TextLine& line = top().line;
  return !line.empty() && !line.back().text.empty() &&
         characters_.is_digit(last_code_point(line.back().text));
}

void TextWriter::alternative(std::string_view words) {
  bool has_digit = false;
  for (CodePoints points(words); !points.done();) {
    has_digit = characters_.is_decimal(points.next()) || has_digit;
  }
  if (std::ranges::count(words, ' ') >= kMaxNameWords && !has_digit) return;
  if (seen_.contains(words) || pictured_.contains(words)) return;
  words = arena_.keep(words);
  pictured_.insert(words);
  made("[");
  const int32_t index = add_source(words);
  alternatives_[index] = words;
  top().line.push_back({words, index});
  made("]", false);
  separate();
}

void TextWriter::end_link(std::string_view address) {
  Frame& frame = top();
  if (frame.line.empty()) return;
  links_.push_back(arena_.keep(address));
  frame.line.push_back({{}, TextPart::kMade - static_cast<int32_t>(links_.size())});
  // An item that is nothing but a link needs no mark; in front of more text it gets one.
  const bool only = link_start_ == 0 && frame.line.front() == TextPart{"- "};
  frame.only_link = only ? frame.line.size() : 0;
}

void TextWriter::start_row() {
  start_block();
  frames_.emplace_back();
  top().is_row = true;
}

void TextWriter::end_cell() {
  TextLines lines = close_frame();
  Frame& frame = top();
  if (frame.is_row) {
    frame.cells.push_back(std::move(lines));
  } else {
    std::ranges::move(lines, std::back_inserter(frame.lines));
  }
}

void TextWriter::end_row() {
  std::vector<TextLines> cells = std::move(top().cells);
  TextLines stray = close_frame();
  std::erase_if(cells, [](const TextLines& cell) { return cell.empty(); });
  TextLines& lines = top().lines;
  std::ranges::move(stray, std::back_inserter(lines));
  if (cells.empty()) return;
  if (!is_data_row(cells)) {
    for (TextLines& cell : cells) {
      // Nested layout tables hand their lines up uncopied.
      if (lines.empty()) {
        lines = std::move(cell);
      } else {
        std::ranges::move(cell, std::back_inserter(lines));
      }
    }
    return;
  }
  TextLine joined;
  for (const TextLines& cell : cells) {
    if (!joined.empty()) joined.push_back(kCell);
    for (size_t i = 0; i < cell.size(); ++i) {
      if (i > 0) joined.push_back(kSpace);
      joined.insert(joined.end(), cell[i].begin(), cell[i].end());
    }
  }
  lines.push_back(std::move(joined));
}

TextLines TextWriter::close_frame() {
  top().glue = {};
  end_line();
  TextLines lines = std::move(top().lines);
  frames_.pop_back();
  return lines;
}

VisibleText TextWriter::finish() {
  while (frames_.size() > 1) top().is_row ? end_row() : end_cell();
  TextLines lines = close_frame();
  if (!keeps_menus_) drop_menus(lines, characters_);
  Repeats repeats(characters_, alternatives_, seen_);
  VisibleText found;
  int64_t offset = 0;
  for (TextLine& line : lines) {
    repeats.drop_pictured(line);
    if (!line.empty() && line.back() == kInMenu) line.pop_back();
    if (repeats.says_nothing_new(line)) continue;
    if (!found.text.empty()) {
      found.text.push_back('\n');
      ++offset;
    }
    for (const TextPart& part : line) {
      const int64_t end = offset + count_code_points(part.text);
      if (part.source >= 0) {
        found.starts.push_back(offset);
        found.ends.push_back(end);
        found.piece_sources.push_back(part.source);
      } else if (part.is_link_end()) {
        const auto link = static_cast<size_t>(TextPart::kMade - 1 - part.source);
        found.links.emplace_back(offset, links_[link]);
      }
      found.text += part.text;
      offset = end;
    }
  }
  found.sources = std::move(sources_);
  found.arena = std::move(arena_);
  return found;
}

}  // namespace pagemill
