// Which elements of a page a reader sees, told by their tag and their own attributes.
// The rules are those of extraction/page/visibility.py, where they stand as regular expressions.
#pragma once

#include <string_view>

#include "page_markup.h"

namespace pagemill {

// The attributes that the rules ask for; views are empty where there is none.
struct SightAttributes {
  bool has_style = false, has_hidden = false, has_class = false, is_open = false;
  std::string_view style, names, id, role, aria_hidden;
};

class Sight {
 public:
  // `source`: the page's own markup (UTF-8).
  explicit Sight(std::string_view source) : source_(source) {}

  // Whether the attributes take the element, and all that it holds, out of sight. Reads the whole
  // source at worst.
  bool is_hidden(std::string_view tag, const SightAttributes& attributes) const;

 private:
  bool is_panel(const SightAttributes& attributes) const;
  bool is_opened(std::string_view id) const;

  std::string_view source_;
};

// Whether the element's own style draws a line through its text.
bool is_struck_style(std::string_view style);

// Whether an element's role, name or class says that it is for navigation.
bool is_menu(const SightAttributes& attributes);

// Whether the text is for screen readers.
bool is_spoken_only(std::string_view names);

// Whether a text ends like the name of an image's file.
bool is_file_name(std::string_view text);

}  // namespace pagemill
