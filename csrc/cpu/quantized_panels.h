// Attention's two products on the kernels of the matrix product, 16 columns at a time.
#pragma once

#include "cpu/matrix_tile.h"
#include "cpu/packed_matrix.h"
#include "cpu/quantized_tile.h"

namespace pagemill {

static_assert(kTileQueries <= kTileRows);

// As QuantizedTileKernels::score.
inline void score_by_panels(const MatrixTileKernels& kernels, const int16_t* queries,
                            int32_t num_rows, int32_t head_dim, const QuantizedTile& tile,
                            int32_t padded, float* scores) {
  alignas(64) int32_t exact[kTileQueries * kPanelColumns];
  for (int32_t j = 0; j < padded; j += kPanelColumns) {
    kernels.int16(queries, head_dim, tile.wide_keys + int64_t{j} * head_dim, 2 * kPanelColumns,
                  head_dim / 2, num_rows, exact);
    kernels.scale_sums(exact, tile.key_scales + j, nullptr, num_rows, false, scores + j,
                       kQuantizedPositions);
  }
}

// As QuantizedTileKernels::add_values. accumulate(sums, out): out[i][j] = out[i][j] * factors[i] +
// sums[i][j] * scale, for sums [num_rows][16].
template <typename Accumulate>
inline void add_values_by_panels(const MatrixTileKernels& kernels, const int16_t* weights,
                                 int32_t num_rows, int32_t head_dim, const QuantizedTile& tile,
                                 int32_t padded, float* results, const Accumulate& accumulate) {
  alignas(64) int32_t exact[kTileQueries * kPanelColumns];
  for (int32_t d = 0; d < head_dim; d += kPanelColumns) {
    kernels.int16(weights, kQuantizedPositions, tile.wide_values + int64_t{2} * d, int64_t{2} * head_dim,
                  padded / 2, num_rows, exact);
    accumulate(exact, results + d);
  }
}

}  // namespace pagemill
