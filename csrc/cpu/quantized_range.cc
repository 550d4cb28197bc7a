#include "cpu/quantized_range.h"

#include <algorithm>
#include <limits>

#include "cpu/aligned.h"
#include "cpu/instruction_set.h"
#include "cpu/quantized_tile.h"

namespace pagemill {
namespace {

constexpr int32_t kUnit = KvCache::kUnit;
constexpr float kLimit = 32767.0f;  // of rounded weights
// Sums of a tile are exact: 32767 * 127 * 64 < 2^31, and so are scores up to head_dim 512.
static_assert(int64_t{32767} * 127 * kQuantizedPositions < int64_t{1} << 31);

const QuantizedTileKernels& tile_kernels() {
  const InstructionSet set = instruction_set();
  if (set >= InstructionSet::kAvx512) return *avx512_quantized_kernels();
  if (set == InstructionSet::kAvx2) return *avx2_quantized_kernels();
  return *portable_quantized_kernels();
}

// A tile of K and V; scales are zeros behind its last position.
struct Tile {
  QuantizedTile units;
  AlignedVector<int16_t> wide_keys, wide_values;
  alignas(64) float key_scales[kQuantizedPositions];
  alignas(64) float factors[kQuantizedPositions];  // that weights get before they are rounded
  float weight;  // what a rounded weight times a value has to be multiplied by

  void load(const QuantizedRange& range, const QuantizedTileKernels& kernels, int32_t start,
            int32_t count) {
    const int64_t unit_elements = int64_t{kUnit} * range.cache.head_dim();
    if (kernels.widen != nullptr) {
      grow(wide_keys, kQuantizedPositions / kUnit * unit_elements);
      grow(wide_values, kQuantizedPositions / kUnit * unit_elements);
    }
    for (int32_t first = 0; first < count; first += kUnit) {
      const auto unit = range.unit(start + first);
      units.keys[first / kUnit] = unit.keys;
      units.values[first / kUnit] = unit.values;
      if (kernels.widen != nullptr) {
        const int64_t place = first / kUnit * unit_elements;
        kernels.widen(unit.keys, unit_elements, wide_keys.data() + place);
        kernels.widen(unit.values, unit_elements, wide_values.data() + place);
      }
      std::copy_n(unit.key_scales, kUnit, key_scales + first);
      std::copy_n(unit.value_scales, kUnit, factors + first);
      range.prefetch(start + first + kQuantizedPositions);
    }
    units.wide_keys = wide_keys.data();
    units.wide_values = wide_values.data();
    units.key_scales = key_scales;
    const float largest = std::max(0.0f, *std::max_element(factors, factors + count));
    const float inverse = largest > 0.0f ? kLimit / largest : 0.0f;
    for (int32_t j = 0; j < kQuantizedPositions; ++j) {
      factors[j] = j < count ? factors[j] * inverse : 0.0f;
    }
    weight = largest / kLimit;
  }
};

// Queries `first` to `first + num_queries`, at most kTileQueries, over a tile.
void attend(const QuantizedRange& range, const QuantizedTileKernels& kernels, const Tile& tile,
            int32_t start, int32_t count, int32_t first, int32_t num_queries) {
  const int32_t head_dim = range.cache.head_dim();
  int32_t visible[kTileQueries];
  int32_t most = 0;
  for (int32_t i = 0; i < num_queries; ++i) {
    visible[i] = std::clamp(range.last_positions[first + i] + 1 - start, 0, count);
    most = std::max(most, visible[i]);
  }
  if (most == 0) return;
  const int32_t padded = (most + kUnit - 1) / kUnit * kUnit;
  alignas(64) float scores[kTileQueries * kQuantizedPositions];
  alignas(64) int16_t weights[kTileQueries * kQuantizedPositions];
  float factors[kTileQueries];
  kernels.score(range.queries + int64_t{first} * head_dim, num_queries, head_dim, tile.units,
                padded, scores);
  for (int32_t i = 0; i < num_queries; ++i) {
    int16_t* target = weights + i * kQuantizedPositions;
    if (visible[i] == 0) {
      std::fill_n(target, padded, int16_t{0});
      factors[i] = 1.0f;
      continue;
    }
    factors[i] = kernels.softmax(scores + i * kQuantizedPositions, range.query_scales[first + i],
                                 visible[i], padded, tile.factors, &range.maxima[first + i],
                                 &range.sums[first + i], target);
  }
  kernels.add_values(weights, num_queries, head_dim, tile.units, padded, factors, tile.weight,
                     range.results + int64_t{first} * head_dim);
}

}  // namespace

void attend_on_integers(const QuantizedRange& range) {
  thread_local Tile tile;
  const QuantizedTileKernels& kernels = tile_kernels();
  std::fill_n(range.results, int64_t{range.num_queries} * range.cache.head_dim(), 0.0f);
  std::fill_n(range.maxima, range.num_queries, -std::numeric_limits<float>::infinity());
  std::fill_n(range.sums, range.num_queries, 0.0f);
  for (int32_t start = range.start; start < range.end; start += kQuantizedPositions) {
    const int32_t count = std::min(kQuantizedPositions, range.end - start);
    tile.load(range, kernels, start, count);
    for (int32_t first = 0; first < range.num_queries; first += kTileQueries) {
      attend(range, kernels, tile, start, count, first,
             std::min(kTileQueries, range.num_queries - first));
    }
  }
}

}  // namespace pagemill
