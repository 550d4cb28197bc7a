// Text under construction: words become lines, lines a text whose pieces know their source.
// The rules are those of extraction/page/lines.py, which says what they are for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "characters.h"

namespace pagemill {

// Texts that stay where they are as long as the arena lives.
class TextArena {
 public:
  std::string_view keep(std::string_view text);

  // Room for a text of at most `size` bytes; `shrink` then gives back what wasn't needed of it.
  char* take(size_t size);
  void shrink(size_t unused) { left_ += unused, next_ -= unused; }

 private:
  std::vector<std::unique_ptr<char[]>> chunks_;
  char* next_ = nullptr;
  size_t left_ = 0;
};

// A part of a line. `source` is the index of its source text, kMade if it is ours, or of a link's
// end the link's number below it: kMade - 1 for the first.
struct TextPart {
  static constexpr int32_t kMade = -1;

  std::string_view text;
  int32_t source = kMade;

  bool is_link_end() const { return source < kMade; }
  friend bool operator==(const TextPart&, const TextPart&) = default;
};

using TextLine = std::vector<TextPart>;
using TextLines = std::vector<TextLine>;

// A page's visible text. Piece i is text[starts[i]:ends[i]], in code points, and shows the words of
// `sources[piece_sources[i]]`.
struct VisibleText {
  std::string text;
  std::vector<int64_t> starts, ends, piece_sources;
  std::vector<std::string_view> sources;
  std::vector<std::pair<int64_t, std::string_view>> links;  // offset of the end, address
  TextArena arena;                                          // what the views show
};

// Collects words into lines; knows lists, rows and definitions, but no tree.
class TextWriter {
 public:
  TextWriter(const Characters& characters, bool keeps_menus);

  // Adds text as it stands in the source; white space is normalised.
  void words(std::string_view text);
  // Adds text of ours, a literal.
  void made(std::string_view text, bool spaced = true);
  // What follows is a word of its own.
  void separate() { top().space = true; }
  // Ends the line, unless it waits for what follows.
  void end_line();
  // Starts a line; `prefix`, a literal, stands before its first word.
  void start_block(std::string_view prefix = {});
  // Lets the next words follow on this line, after `glue`, a literal.
  void join_next(std::string_view glue);
  void start_struck();
  void end_struck();
  bool ends_with_digit() const;
  // Adds an image's text, white space normalised; it is left out where the page says the same.
  void alternative(std::string_view words);
  void start_menu() { ++menus_; }
  void end_menu() { --menus_; }
  void start_link() { link_start_ = top().line.size(); }
  void end_link(std::string_view address);
  void start_row();
  void start_cell() { frames_.emplace_back(); }
  void end_cell();
  void end_row();

  // The text of all lines; the writer is used up.
  VisibleText finish();

 private:
  // Lines under construction: the page's, a row's or those of a cell.
  struct Frame {
    TextLines lines;
    TextLine line;
    std::string_view prefix;
    std::string_view glue;
    bool space = false;
    size_t only_link = 0;
    bool is_row = false;
    std::vector<TextLines> cells;
  };

  Frame& top() { return frames_.back(); }
  const Frame& top() const { return frames_.back(); }
  void open(bool spaced);
  int32_t add_source(std::string_view text);
  TextLines close_frame();

  const Characters& characters_;
  bool keeps_menus_;
  int menus_ = 0;
  TextArena arena_;
  std::vector<Frame> frames_;
  std::vector<std::string_view> sources_;
  std::vector<std::string_view> links_;
  std::unordered_set<std::string_view> seen_;
  std::unordered_set<std::string_view> pictured_;
  std::unordered_map<int32_t, std::string_view> alternatives_;  // by source
  size_t link_start_ = 0;
  std::string_view mark_;
};

}  // namespace pagemill
