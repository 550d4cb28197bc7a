#include "sample.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pagemill {
namespace {

constexpr size_t kFirstSorted = 64;  // as many more are sorted at a time, times two each time

struct Candidate {
  double weight;
  int32_t id;
};

bool before(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
}

}  // namespace

int32_t draw(const float* logits, std::span<const int32_t> ids, const Draw& by) {
  if (ids.empty()) return -1;
  float highest = -std::numeric_limits<float>::infinity();
  for (const int32_t id : ids) highest = logits[id] > highest ? logits[id] : highest;
  if (highest == -std::numeric_limits<float>::infinity()) return ids[0];
  std::vector<Candidate> candidates;
  candidates.reserve(ids.size());
  double sum = 0;
  for (const int32_t id : ids) {
    const double weight = std::exp((static_cast<double>(logits[id]) - highest) / by.temperature);
    if (!(weight > 0)) continue;
    candidates.push_back({weight, id});
    sum += weight;
  }
  // Few ids hold most of the mass, so that only those are sorted which are looked at.
  size_t sorted = 0;
  const auto weight_at = [&](size_t i) {
    if (i >= sorted) {
      const size_t next = std::min(candidates.size(), std::max(kFirstSorted, 2 * sorted));
      const auto from = candidates.begin() + static_cast<std::ptrdiff_t>(sorted);
      const auto to = candidates.begin() + static_cast<std::ptrdiff_t>(next);
      std::partial_sort(from, to, candidates.end(), before);
      sorted = next;
    }
    return candidates[i].weight / sum;
  };
  size_t kept = candidates.size();
  double total = 1.0;
  if (by.top_p < 1.0f) {
    total = 0;
    for (kept = 0; kept < candidates.size() && total < by.top_p; ++kept) total += weight_at(kept);
  }
  double mass = 0;
  for (size_t i = 0; i < kept; ++i) {
    mass += weight_at(i);
    if (mass > by.uniform * total) return candidates[i].id;
  }
  return candidates[kept - 1].id;
}

}  // namespace pagemill
