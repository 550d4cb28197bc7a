#include "loop_watch.h"

#include <algorithm>

namespace pagemill {
namespace {

// Ways in which a state may be reached, as bits. After a backslash a quote closes nothing.
constexpr uint8_t kOutside = 1;
constexpr uint8_t kInside = 2;
constexpr uint8_t kEscaped = 4;

uint8_t after(uint8_t ways, uint8_t byte) {
  uint8_t result = 0;
  if ((ways & kOutside) != 0) result |= byte == '"' ? kInside : kOutside;
  if ((ways & kEscaped) != 0) result |= kInside;
  if ((ways & kInside) != 0) {
    result |= byte == '"' ? kOutside : byte == '\\' ? kEscaped : kInside;
  }
  return result;
}

}  // namespace

Regions::Regions(const ByteDfa& dfa) : in_string_(dfa.num_states(), 0) {
  std::vector<uint8_t> ways(dfa.num_states(), 0);
  std::vector<int32_t> pending{dfa.start()};
  ways[dfa.start()] = kOutside;
  while (!pending.empty()) {
    const int32_t state = pending.back();
    pending.pop_back();
    const uint8_t from = ways[state];
    dfa.for_each_edge(state, [&](uint8_t byte, int32_t to, const CounterOp*) {
      const uint8_t more = static_cast<uint8_t>(ways[to] | after(from, byte));
      if (more == ways[to]) return;
      ways[to] = more;
      pending.push_back(to);
    });
  }
  const bool is_json = std::none_of(ways.begin(), ways.end(), [](uint8_t way) {
    return (way & kOutside) != 0 && way != kOutside;
  });
  if (!is_json) return;
  for (size_t state = 0; state < ways.size(); ++state) in_string_[state] = ways[state] > kOutside;
}

bool LoopWatch::push(const ByteDfa& dfa, const Regions& regions, int32_t state, int32_t token,
                     std::string_view bytes) {
  bool inside = regions.in_string(state);
  bool stays = inside;
  for (const char raw : bytes) {
    const uint8_t byte = static_cast<uint8_t>(raw);
    state = dfa.next(state, byte);
    if (state < 0) return false;
    const bool was_inside = inside;
    inside = regions.in_string(state);
    stays = stays && inside;
    const bool of_number = !was_inside && !inside && is_number_byte(byte);
    number_bytes_ = of_number ? number_bytes_ + 1 : 0;
  }
  if (!stays) forget();
  if (looping_ == Region::kNumber && number_bytes_ == 0) looping_ = Region::kNone;
  if (looping_ != Region::kNone) return false;
  if (stays && repeats(token)) {
    looping_ = Region::kString;
  } else if (number_bytes_ > kMaxNumberBytes) {
    looping_ = Region::kNumber;
  }
  return looping_ != Region::kNone;
}

bool LoopWatch::repeats(int32_t token) {
  bool found = false;
  for (int32_t period = 1; period <= std::min(size_, kMaxPeriod); ++period) {
    uint16_t& equal = equal_[period];
    equal = recent_[(size_ - period) % kMaxPeriod] == token
                ? static_cast<uint16_t>(std::min<int32_t>(equal + 1, 1 << 12))
                : uint16_t{0};
    const int32_t length = equal + period;
    found = found || (length >= kMinTokens && length >= kMinRepeats * period);
  }
  recent_[size_ % kMaxPeriod] = token;
  ++size_;
  return found;
}

void LoopWatch::forget() {
  equal_.fill(0);
  size_ = 0;
  if (looping_ == Region::kString) looping_ = Region::kNone;
}

}  // namespace pagemill
