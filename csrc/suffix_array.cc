#include "suffix_array.h"

#include <algorithm>
#include <span>
#include <stdexcept>

namespace pagemill {
namespace {

// A suffix is small if it is less than the one after it; a place of interest is a small suffix after
// a large one. Their order gives that of all others, in two passes over the buckets of first symbols.
template <typename Symbol>
class Induction {
 public:
  Induction(std::span<const Symbol> text, int32_t num_symbols)
      : text_(text), small_(text.size(), 0), large_first_(num_symbols + 1, 0),
        small_first_(num_symbols + 1, 0) {
    const size_t n = text.size();
    for (size_t i = n - 1; i-- > 0;) {
      small_[i] = text[i] == text[i + 1] ? small_[i + 1] : text[i] < text[i + 1];
    }
    // Within a bucket the large suffixes come first.
    for (size_t i = 0; i < n; ++i) {
      if (small_[i] != 0) {
        ++large_first_[symbol(i) + 1];
      } else {
        ++small_first_[symbol(i)];
      }
    }
    for (int32_t c = 0; c < num_symbols; ++c) {
      small_first_[c] += large_first_[c];
      large_first_[c + 1] += small_first_[c];
    }
  }

  std::vector<int32_t> sort() {
    const auto n = static_cast<int32_t>(text_.size());
    std::vector<int32_t> places;  // of interest
    for (int32_t i = 1; i < n; ++i) {
      if (small_[i] != 0 && small_[i - 1] == 0) places.push_back(i);
    }
    std::vector<int32_t> order = induce(places);
    if (places.size() < 2) return order;
    return induce(sorted(places, order));
  }

 private:
  size_t symbol(size_t place) const { return static_cast<size_t>(text_[place]); }

  // All suffixes in order, if `places` are the places of interest in order; else those in the order
  // of what stands up to the next place of interest.
  std::vector<int32_t> induce(const std::vector<int32_t>& places) const {
    const auto n = static_cast<int32_t>(text_.size());
    std::vector<int32_t> order(text_.size(), -1);
    std::vector<int32_t> next = small_first_;
    for (const int32_t place : places) order[next[symbol(place)]++] = place;
    next = large_first_;
    order[next[symbol(n - 1)]++] = n - 1;
    for (int32_t i = 0; i < n; ++i) {
      const int32_t before = order[i] - 1;
      if (before >= 0 && small_[before] == 0) order[next[symbol(before)]++] = before;
    }
    next = large_first_;
    for (int32_t i = n; i-- > 0;) {
      const int32_t before = order[i] - 1;
      if (before >= 0 && small_[before] != 0) order[--next[symbol(before) + 1]] = before;
    }
    return order;
  }

  // The places of interest in the order of their suffixes, out of `order`, where they are in that of
  // the pieces between them: equal pieces get equal names, and the text of names is sorted.
  std::vector<int32_t> sorted(const std::vector<int32_t>& places,
                              const std::vector<int32_t>& order) const {
    const auto n = static_cast<int32_t>(text_.size());
    const auto count = static_cast<int32_t>(places.size());
    std::vector<int32_t> number(text_.size(), -1);  // of each place of interest
    for (int32_t i = 0; i < count; ++i) number[places[i]] = i;
    const auto end_of = [&](int32_t place) {
      return number[place] + 1 < count ? places[number[place] + 1] : n;
    };
    std::vector<int32_t> names(places.size());
    int32_t name = 0;
    int32_t last = -1;
    for (const int32_t place : order) {
      if (number[place] < 0) continue;
      if (last >= 0 && !equal(last, end_of(last), place, end_of(place))) ++name;
      names[number[place]] = name;
      last = place;
    }
    std::vector<int32_t> result = Induction<int32_t>(names, name + 1).sort();
    for (int32_t& place : result) place = places[place];
    return result;
  }

  // Whether two pieces are equal, with the symbol that begins the next one.
  bool equal(int32_t a, int32_t a_end, int32_t b, int32_t b_end) const {
    const auto n = static_cast<int32_t>(text_.size());
    if (a_end - a != b_end - b || a_end == n || b_end == n) return false;
    return std::equal(text_.begin() + a, text_.begin() + a_end + 1, text_.begin() + b);
  }

  std::span<const Symbol> text_;
  std::vector<uint8_t> small_;
  std::vector<int32_t> large_first_, small_first_;  // by symbol, where its suffixes begin
};

}  // namespace

std::vector<int32_t> suffix_array(std::string_view text) {
  if (text.size() >= size_t{1} << 30) throw std::invalid_argument("a text of 2^30 bytes or more");
  if (text.empty()) return {};
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  return Induction<uint8_t>({bytes, text.size()}, 256).sort();
}

}  // namespace pagemill
