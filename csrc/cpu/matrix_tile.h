// The inner loops of the matrix product, in several instruction sets.
#pragma once

#include <cstdint>

namespace pagemill {

// One instruction set's inner loops; see packed_matrix.h for the layout of a panel. Each product
// takes 1 to 6 rows. Those in float32 write 16 sums of each row to out + row * out_stride; depth is
// even for a panel in bfloat16.
struct MatrixTileKernels {
  void (*float32)(const float* rows, int64_t stride, const float* panel, int32_t depth,
                  int32_t num_rows, float* out, int64_t out_stride);
  void (*bfloat16)(const float* rows, int64_t stride, const uint16_t* panel, int32_t depth,
                   int32_t num_rows, float* out, int64_t out_stride);
  // Panels [pairs][16][2], the pairs panel_stride numbers apart: exact sums [num_rows][16]. The
  // caller sees to it that they fit into 32 bits.
  void (*int16)(const int16_t* rows, int64_t row_stride, const int16_t* panel,
                int64_t panel_stride, int64_t num_pairs, int32_t num_rows, int32_t* sums);

  // out[p][j][.] = source[p][j][.] * factors[j], exactly, for a panel [num_pairs][16][2]; factors of
  // 1 where the pointer is null.
  void (*widen_int8)(const int8_t* source, int64_t num_pairs, const uint8_t* factors,
                     int16_t* out);

  // A panel [num_pairs][16][2] of bfloat16 to one of float32, [2 * num_pairs][16].
  void (*widen_pairs)(const uint16_t* source, int64_t num_pairs, float* out);

  // Rounds a row so that its largest magnitude becomes `limit`, zeros from `count` to `padded`;
  // returns the scale, 0 for a row of zeros.
  float (*quantize)(const float* row, int32_t count, int32_t padded, float limit, int16_t* out);

  // out[j] (+)= sums[j] + bias[j] for j < 16; no bias where it is null.
  void (*store)(const float* sums, const float* bias, bool accumulate, float* out);

  // out[i][j] (+)= sums[i][j] * scales[j] * row_scales[i], for sums [num_rows][16]; no factor of the
  // row where row_scales is null.
  void (*scale_sums)(const int32_t* sums, const float* scales, const float* row_scales,
                     int32_t num_rows, bool accumulate, float* out, int64_t out_stride);
};

const MatrixTileKernels* portable_matrix_kernels();
// nullptr where the build hasn't got them.
const MatrixTileKernels* avx2_matrix_kernels();
const MatrixTileKernels* avx512_matrix_kernels();

}  // namespace pagemill
