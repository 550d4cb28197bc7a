#include "page_index.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <stdexcept>

namespace pagemill {

PageIndex::PageIndex(std::string text) : text_(std::move(text)) {
  if (text_.size() > kMaxBytes) {
    throw std::invalid_argument("a page of " + std::to_string(text_.size()) + " bytes");
  }
  const size_t slots = std::bit_ceil(std::clamp<size_t>(text_.size() / 2, 64, 1 << 16));
  mask_ = static_cast<uint32_t>(slots - 1);
  last_.assign(slots, kNone);
  previous_.assign(text_.size() + 1, kNone);
  for (size_t end = kGram; end <= text_.size(); ++end) {
    int32_t& last = last_[slot(text_.data() + end - kGram)];
    previous_[end] = last;
    last = static_cast<int32_t>(end);
  }
}

size_t PageIndex::slot(const char* gram) const {
  const auto byte = [&](int i) { return static_cast<uint32_t>(static_cast<uint8_t>(gram[i])); };
  const uint32_t value = byte(0) | byte(1) << 8 | byte(2) << 16;
  return (value * 2654435761u >> 12) & mask_;
}

PageIndex::Match PageIndex::find_suffix(std::string_view context, int32_t near) const {
  Match best;
  if (context.size() < kGram) return best;
  const size_t most = std::min<size_t>(context.size(), kMaxMatch);
  int32_t end = last_[slot(context.data() + context.size() - kGram)];
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
