// The decoding state of a constrained row.
#pragma once

#include <array>
#include <cstdint>

#include "page_spans.h"

namespace pagemill {

// Counters of a row: one for the string that is open, the others for open arrays by depth.
inline constexpr int kMaxCounters = 6;

// A fixed, trivially copyable value: checking a draft is stepping a copy, rolling back is keeping
// the old one, and a kernel can hold it in registers. A counter is 0 outside the construct that it
// counts, so equal situations are equal structs.
struct RowState {
  int32_t state = 0;                              // of the byte automaton
  std::array<uint16_t, kMaxCounters> counters{};  // lengths and counts beside the automaton
  const PageSpans* page = nullptr;                // what verbatim strings may hold; not owned
  PageSpan span;                                  // the open verbatim string
  int32_t overlay = -1;                           // bytes known before decoding; -1 none

  friend bool operator==(const RowState&, const RowState&) = default;
};

}  // namespace pagemill
