// Pairs of bfloat16 multiplied and added in float32, chosen at run time (cpu/avx512.h).
#include "cpu/tile_product.h"

#if defined(__x86_64__)

#include <utility>

#include "cpu/aligned.h"
#include "cpu/tile_product_avx512.h"

namespace pagemill {
namespace {

// Panels are passed over in sections of this many tiles, so that a section stays in the first-level
// cache while the rows pass by.
constexpr int32_t kSectionTiles = 18;

// Rows of one tile times tiles first..last of a panel. With few rows several sums a row hide the
// latency of the products.
template <int kRows>
PAGEMILL_AVX512 void multiply_rows(const uint16_t* rows, const uint16_t* panel, int32_t tiles,
                                   float* sums) {
  constexpr int kChains = kRows <= 2 ? 4 : kRows <= 6 ? 2 : 1;
  __m512 chains[kChains][kRows];
  PAGEMILL_UNROLL
  for (int c = 0; c < kChains; ++c) {
    PAGEMILL_UNROLL
    for (int i = 0; i < kRows; ++i) {
      chains[c][i] = c == 0 ? _mm512_loadu_ps(sums + i * kWideLanes) : _mm512_setzero_ps();
    }
  }
  for (int32_t tile = 0; tile < tiles; ++tile, rows += kRowTileElements) {
    for (int pair = 0; pair < kRowTileDepth / 2; pair += kChains) {
      PAGEMILL_UNROLL
      for (int c = 0; c < kChains; ++c, panel += 32) {
        const auto weights = (__m512bh)_mm512_loadu_si512(panel);
        PAGEMILL_UNROLL
        for (int i = 0; i < kRows; ++i) {
          int32_t two;
          __builtin_memcpy(&two, rows + i * kRowTileDepth + 2 * (pair + c), sizeof two);
          chains[c][i] = _mm512_dpbf16_ps(chains[c][i], (__m512bh)_mm512_set1_epi32(two), weights);
        }
      }
    }
  }
  PAGEMILL_UNROLL
  for (int i = 0; i < kRows; ++i) {
    __m512 sum = chains[0][i];
    PAGEMILL_UNROLL
    for (int c = 1; c < kChains; ++c) sum = _mm512_add_ps(sum, chains[c][i]);
    _mm512_storeu_ps(sums + i * kWideLanes, sum);
  }
}

using RowsKernel = void (*)(const uint16_t*, const uint16_t*, int32_t, float*);

template <int... kCounts>
constexpr RowsKernel choose(int32_t count, std::integer_sequence<int, kCounts...>) {
  constexpr RowsKernel kernels[] = {multiply_rows<kCounts + 1>...};
  return kernels[count - 1];
}

PAGEMILL_AVX512 void multiply(const TileProduct& product, const TileTask& task) {
  thread_local AlignedVector<uint16_t> wide;
  thread_local AlignedVector<float> sums;
  const int32_t depth_tiles = product.depth_tiles();
  const size_t num_sums = static_cast<size_t>(task.last_row - task.first_row) * kWideLanes;
  if (sums.size() < num_sums) sums.resize(num_sums);
  if (product.int8 != nullptr) wide.resize(kSectionTiles * kRowTileElements);
  for (int32_t panel = task.first_panel; panel < task.last_panel; ++panel) {
    std::fill_n(sums.data(), num_sums, 0.0f);
    for (int32_t first = 0; first < depth_tiles; first += kSectionTiles) {
      const int32_t last = std::min(depth_tiles, first + kSectionTiles);
      const uint16_t* section = wide.data();
      if (product.int8 != nullptr) {
        widen_tiles(product, panel, first, last, wide.data());
      } else {
        section = product.bfloat16 + panel * product.panel_elements() +
                  int64_t{first} * kRowTileElements;
      }
      for (int32_t row = task.first_row; row < task.last_row; row += kRowTileHeight) {
        const int32_t count = std::min(kRowTileHeight, task.last_row - row);
        const int64_t tile = int64_t{row / kRowTileHeight} * depth_tiles + first;
        choose(count, std::make_integer_sequence<int, kRowTileHeight>())(
            product.rows + tile * kRowTileElements, section, last - first,
            sums.data() + int64_t{row - task.first_row} * kWideLanes);
      }
    }
    const TileEpilogue epilogue(product, panel);
    for (int32_t row = task.first_row; row < task.last_row; ++row) {
      epilogue.store(row,
                     _mm512_loadu_ps(sums.data() + int64_t{row - task.first_row} * kWideLanes));
    }
  }
}

PAGEMILL_AVX512 void row_to_tiles(const float* row, int32_t count, int32_t padded,
                                  uint16_t* out) {
  const auto mask_from = [count](int32_t first) {
    const int32_t left = std::clamp(count - first, 0, kWideLanes);
    return static_cast<__mmask16>((1u << left) - 1);
  };
  for (int32_t k = 0; k < padded; k += kRowTileDepth, out += kRowTileElements) {
    const __m512 low = _mm512_maskz_loadu_ps(mask_from(k), row + k);
    const __m512 high = _mm512_maskz_loadu_ps(mask_from(k + kWideLanes), row + k + kWideLanes);
    _mm512_storeu_si512(out, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  }
}

}  // namespace

TileProductKernel avx512_tile_product() { return multiply; }
TileRowKernel avx512_tile_row() { return row_to_tiles; }

}  // namespace pagemill

#else

namespace pagemill {

TileProductKernel avx512_tile_product() { return nullptr; }
TileRowKernel avx512_tile_row() { return nullptr; }

}  // namespace pagemill

#endif
