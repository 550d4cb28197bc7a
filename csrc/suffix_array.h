// The suffixes of a text in order.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace pagemill {

// The places of `text` in the order of what follows them, a suffix before those that go on beyond
// it. By induced sorting (Nong, Zhang and Chan 2009, "Linear suffix array construction by almost
// pure induced-sorting"): time and memory are linear in the text, whatever it repeats; some 14 bytes
// a byte. Throws std::invalid_argument for 2^30 bytes and more.
std::vector<int32_t> suffix_array(std::string_view text);

}  // namespace pagemill
