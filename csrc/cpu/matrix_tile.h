// The inner loops of the matrix product, in several instruction sets.
#pragma once

#include <cstdint>

namespace pagemill {

// One instruction set's inner loops; see packed_matrix.h for the layout of a panel. Each product
// writes sums [num_rows][16] of rows x panel, num_rows being 1 to 6.
struct MatrixTileKernels {
  void (*float32)(const float* rows, int64_t stride, const float* panel, int32_t depth,
                  int32_t num_rows, float* sums);
  void (*bfloat16)(const float* rows, int64_t stride, const uint16_t* panel, int32_t depth,
                   int32_t num_rows, float* sums);
  // `depth` is even.
  void (*int8)(const int16_t* rows, int64_t stride, const int8_t* panel, int32_t depth,
               int32_t num_rows, int32_t* sums);

  // Rounds a row so that its largest magnitude becomes `limit`, zeros from `count` to `padded`;
  // returns the scale, 0 for a row of zeros.
  float (*quantize)(const float* row, int32_t count, int32_t padded, float limit, int16_t* out);
};

const MatrixTileKernels* portable_matrix_kernels();
const MatrixTileKernels* avx2_matrix_kernels();  // nullptr where the build hasn't got it

}  // namespace pagemill
