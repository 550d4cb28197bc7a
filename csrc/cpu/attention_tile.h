// The inner loops of attention over one tile of positions, in several instruction sets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pagemill {

// Positions of K and V that are worked on at once: K transposed (head_dim x 64 floats) stays in
// the first-level cache for head_dim 64 together with the scores of a few queries.
constexpr int32_t kTilePositions = 64;

// One instruction set's inner loops. All numbers are float32, sizes are in elements.
struct AttentionTileKernels {
  // out[d * kTilePositions + j] = rows[j][d] for j < count, 0 for the others up to a multiple of
  // 16; `rows` holds `count` pointers to head_dim numbers each.
  void (*transpose)(const float* const* rows, int32_t count, int32_t head_dim, float* out);

  // c[i][j] = (or +=, if accumulate) sum over k < depth of a[i * lda + k] * b_rows[k][j], for
  // i < num_rows and j < num_columns.
  void (*multiply)(const float* a, int32_t lda, const float* const* b_rows, float* c, int32_t ldc,
                   int32_t num_rows, int32_t num_columns, int32_t depth, bool accumulate);

  // Online softmax of one query over a tile: turns scores[0 .. visible) into weights
  // exp(score - new maximum), writes 0 up to `padded`, updates maximum and sum, and returns the
  // factor that earlier results have to be scaled by.
  float (*softmax)(float* scores, int32_t visible, int32_t padded, float* maximum, float* sum);

  // values[i] *= factor
  void (*scale)(float* values, int32_t count, float factor);
};

// The kernels of an instruction set, or nullptr where this processor or build hasn't got it.
const AttentionTileKernels* portable_tile_kernels();
const AttentionTileKernels* avx2_tile_kernels();
const AttentionTileKernels* avx512_tile_kernels();

}  // namespace pagemill
