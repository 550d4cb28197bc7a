// Lines of a page's text that say nothing: menus, repeats, images' texts that the page writes too.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "page_writer.h"

namespace pagemill {

inline constexpr TextPart kCell{" | "};  // between cells of a row
inline constexpr TextPart kInMenu{""};   // the last part of lines that stand in a menu

// Drops the links of long menus, unless these are nearly all that the page has.
void drop_menus(TextLines& lines, const Characters& characters);

// Knows what was said. Views must outlive it.
class Repeats {
 public:
  // `alternatives`: images' texts by their source; `seen`: all other texts of the page.
  Repeats(const Characters& characters,
          const std::unordered_map<int32_t, std::string_view>& alternatives,
          const std::unordered_set<std::string_view>& seen);

  // Drops the images' texts of which the page's text has each word.
  void drop_pictured(TextLine& line) const;

  // Whether the line holds no word, or stood before: a link's alone, or a long one.
  bool says_nothing_new(const TextLine& line);

 private:
  const std::unordered_map<int32_t, std::string_view>& alternatives_;
  std::unordered_set<int32_t> told_;  // alternatives that the text tells
  std::unordered_set<std::string> said_;
};

}  // namespace pagemill
