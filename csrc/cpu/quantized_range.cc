#include "cpu/quantized_range.h"

#include <algorithm>
#include <limits>

#include "cpu/aligned_buffer.h"
#include "cpu/instruction_set.h"
#include "cpu/packed_matrix.h"
#include "cpu/quantized_tile.h"

namespace pagemill {
namespace {

// Positions of K and V that are worked on at once: enough that the softmax's bookkeeping counts for
// little, few enough that K and then V, widened to 16 bits, stay in the nearest caches.
constexpr int32_t kTilePositions = 128;
constexpr int32_t kUnit = KvCache::kUnit;
constexpr float kLimit = 32767.0f;  // of rounded weights
// Sums of a tile are exact: 32767 * 127 * 64 < 2^31, and so are scores up to head_dim 512.
static_assert(int64_t{32767} * 127 * kTilePositions < int64_t{1} << 31);

const QuantizedTileKernels& tile_kernels() {
  if (instruction_set() >= InstructionSet::kAvx2) return *avx2_quantized_kernels();
  return *portable_quantized_kernels();
}

// A tile of K and V, widened to 16 bits; scales are zeros behind its last position.
struct Tile {
  AlignedBuffer<int16_t> keys, values;
  alignas(64) float key_scales[kTilePositions];
  alignas(64) float factors[kTilePositions];  // that weights get before they are rounded
  float weight;  // what a rounded weight times a value has to be multiplied by

  void load(const QuantizedRange& range, int32_t start, int32_t count) {
    const MatrixTileKernels& kernels = matrix_kernels();
    const int64_t unit_elements = int64_t{kUnit} * range.cache.head_dim();
    keys.reserve(kTilePositions / kUnit * unit_elements);
    values.reserve(kTilePositions / kUnit * unit_elements);
    for (int32_t first = 0; first < count; first += kUnit) {
      const auto unit = range.unit(start + first);
      const int64_t place = first / kUnit * unit_elements;
      kernels.widen_int8(unit.keys, unit_elements / 32, nullptr, keys.data() + place);
      kernels.widen_int8(unit.values, unit_elements / 32, nullptr, values.data() + place);
      std::copy_n(unit.key_scales, kUnit, key_scales + first);
      std::copy_n(unit.value_scales, kUnit, factors + first);
      range.prefetch(start + first + kTilePositions);
    }
    const float largest = std::max(0.0f, *std::max_element(factors, factors + count));
    const float inverse = largest > 0.0f ? kLimit / largest : 0.0f;
    for (int32_t j = 0; j < kTilePositions; ++j) {
      factors[j] = j < count ? factors[j] * inverse : 0.0f;
    }
    weight = largest / kLimit;
  }
};

// Queries `first` to `first + num_queries`, at most kTileRows, over a tile.
void attend(const QuantizedRange& range, const Tile& tile, int32_t start, int32_t count,
            int32_t first, int32_t num_queries) {
  const int32_t head_dim = range.cache.head_dim();
  int32_t visible[kTileRows];
  int32_t most = 0;
  for (int32_t i = 0; i < num_queries; ++i) {
    visible[i] = std::clamp(range.last_positions[first + i] + 1 - start, 0, count);
    most = std::max(most, visible[i]);
  }
  if (most == 0) return;
  const int32_t padded = (most + kUnit - 1) / kUnit * kUnit;
  const MatrixTileKernels& kernels = matrix_kernels();
  const QuantizedTileKernels& tile_kernel = tile_kernels();
  alignas(64) int32_t exact[kTileRows * kPanelColumns];
  alignas(64) float scores[kTileRows * kTilePositions];
  alignas(64) int16_t weights[kTileRows * kTilePositions];
  float factors[kTileRows];
  for (int32_t j = 0; j < padded; j += kUnit) {
    kernels.int16(range.queries + int64_t{first} * head_dim, head_dim,
                  tile.keys.data() + int64_t{j} * head_dim, 2 * kUnit, head_dim / 2, num_queries,
                  exact);
    kernels.scale_sums(exact, tile.key_scales + j, nullptr, num_queries, false, scores + j,
                       kTilePositions);
  }
  for (int32_t i = 0; i < num_queries; ++i) {
    int16_t* target = weights + i * kTilePositions;
    if (visible[i] == 0) {
      std::fill_n(target, padded, int16_t{0});
      factors[i] = 1.0f;
      continue;
    }
    factors[i] = tile_kernel.softmax(scores + i * kTilePositions, range.query_scales[first + i],
                                     visible[i], padded, tile.factors, &range.maxima[first + i],
                                     &range.sums[first + i], target);
  }
  for (int32_t d = 0; d < head_dim; d += kPanelColumns) {
    kernels.int16(weights, kTilePositions, tile.values.data() + int64_t{2} * d,
                  int64_t{2} * head_dim, padded / 2, num_queries, exact);
    tile_kernel.accumulate(exact, num_queries, factors, tile.weight,
                           range.results + int64_t{first} * head_dim + d, head_dim);
  }
}

}  // namespace

void attend_on_integers(const QuantizedRange& range) {
  thread_local Tile tile;
  std::fill_n(range.results, int64_t{range.num_queries} * range.cache.head_dim(), 0.0f);
  std::fill_n(range.maxima, range.num_queries, -std::numeric_limits<float>::infinity());
  std::fill_n(range.sums, range.num_queries, 0.0f);
  for (int32_t start = range.start; start < range.end; start += kTilePositions) {
    const int32_t count = std::min(kTilePositions, range.end - start);
    tile.load(range, start, count);
    for (int32_t first = 0; first < range.num_queries; first += kTileRows) {
      attend(range, tile, start, count, first, std::min(kTileRows, range.num_queries - first));
    }
  }
}

}  // namespace pagemill
