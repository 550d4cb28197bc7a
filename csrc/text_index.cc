#include "text_index.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <stdexcept>

namespace pagemill {

void TextIndex::append(std::string_view more) {
  if (text_.size() + more.size() > kMaxBytes) {
    throw std::invalid_argument("a text of " + std::to_string(text_.size() + more.size()) +
                                " bytes");
  }
  size_t first = text_.size() + 1;
  text_ += more;
  previous_.resize(text_.size() + 1, kNone);
  const size_t slots = std::bit_ceil(std::clamp<size_t>(text_.size() / 2, 64, 1 << 16));
  if (slots > last_.size()) {
    last_.assign(slots, kNone);
    mask_ = static_cast<uint32_t>(slots - 1);
    first = 0;
  }
  for (size_t end = std::max<size_t>(first, kGram); end <= text_.size(); ++end) add(end);
}

void TextIndex::add(size_t end) {
  int32_t& last = last_[slot(text_.data() + end - kGram)];
  previous_[end] = last;
  last = static_cast<int32_t>(end);
}

size_t TextIndex::slot(const char* gram) const {
  const auto byte = [&](int i) { return static_cast<uint32_t>(static_cast<uint8_t>(gram[i])); };
  const uint32_t value = byte(0) | byte(1) << 8 | byte(2) << 16;
  return (value * 2654435761u >> 12) & mask_;
}

TextIndex::Match TextIndex::find_suffix(std::string_view context, int32_t near,
                                        int32_t stop) const {
  Match best;
  if (context.size() < kGram || last_.empty()) return best;
  const size_t most = std::min<size_t>(context.size(), kMaxMatch);
  int32_t end = last_[slot(context.data() + context.size() - kGram)];
  while (end >= stop) end = previous_[end];
  for (int32_t tried = 0; end != kNone && tried < kMaxCandidates; ++tried, end = previous_[end]) {
    const size_t limit = std::min(most, static_cast<size_t>(end));
    size_t length = 0;
    while (length < limit && text_[end - 1 - length] == context[context.size() - 1 - length]) {
      ++length;
    }
    const auto found = static_cast<int32_t>(length);
    if (found < kGram || found < best.length) continue;
    if (found == best.length && std::abs(end - near) >= std::abs(best.end - near)) continue;
    best = {end, found};
  }
  return best;
}

}  // namespace pagemill
