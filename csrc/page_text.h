// The visible text of a parsed page, one block a line, by one pass over its repaired markup.
#pragma once

#include <cstdint>
#include <string_view>

#include "characters.h"
#include "page_writer.h"

namespace pagemill {

struct PageTextLimits {
  int64_t max_nodes = 0;
  double max_seconds = 0;  // processor time of the thread
};

enum class PageTextOutcome : uint8_t {
  kDone,
  kTooManyNodes,
  kTooSlow,
  kUnsure,  // the markup isn't what a parser writes, or can't be told apart: walk the tree
};

// Reads `markup`, an element as `MarkupReader` takes it; `source` is the page as it was before
// parsing, and `menus` keeps long menus. Does what extraction/page/text.py does with the tree, with
// no recursion, in linear time but for hidden elements with ids: each may search the source.
PageTextOutcome visible_text(std::string_view markup, std::string_view source,
                             const Characters& characters, const PageTextLimits& limits,
                             bool menus, VisibleText& found);

}  // namespace pagemill
