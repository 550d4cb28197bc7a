// What parsing a page would take, so that pages which are made to be slow are refused before.
#pragma once

#include <cstdint>
#include <string_view>

namespace pagemill {

// What an HTML parser would have to do for a page, told by its tags alone.
struct PageCost {
  // Open elements, summed over all tags; and the same if only void elements never stay open, as
  // inside of <svg> and <math>.
  int64_t open_elements = 0;
  int64_t open_elements_foreign = 0;
  // Open formatting elements (<b>, <font>, ...), summed over the tags that may open them again.
  int64_t reopened = 0;
  // Attributes of the element that has most, and their squares summed over elements with many.
  int64_t max_attributes = 0;
  int64_t attribute_pairs = 0;
  // Whether tags within tags had to be read so often that the page must be made for it. The two
  // figures before are those up to there.
  bool is_overlapping = false;
};

// The cost of a page in UTF-8, in one pass. Every `<` before a letter counts as a tag, in comments
// and quotes too: what begins a tag depends on all that stands before it, where its attributes end
// doesn't (HTML standard, 13.2.5.32 to 13.2.5.40).
PageCost page_cost(std::string_view html);

}  // namespace pagemill
