// What attention over an int8 cache does between its two products, in several instruction sets.
#pragma once

#include <cstdint>

namespace pagemill {

struct QuantizedTileKernels {
  // Online softmax of one query over a tile. scores[j] * scale are the scores of positions
  // j < visible; out[j] = exp(score - new maximum) * factors[j], rounded, and 0 from `visible` up to
  // `padded`, a multiple of 16. Updates maximum and sum (of the weights before rounding); returns
  // the factor that earlier results have to be scaled by. `visible` is at least 1.
  float (*softmax)(const float* scores, float scale, int32_t visible, int32_t padded,
                   const float* factors, float* maximum, float* sum, int16_t* out);

  // out[i][j] = out[i][j] * factors[i] + sums[i][j] * scale, for sums [num_rows][16].
  void (*accumulate)(const int32_t* sums, int32_t num_rows, const float* factors, float scale,
                     float* out, int64_t out_stride);
};

const QuantizedTileKernels* portable_quantized_kernels();
const QuantizedTileKernels* avx2_quantized_kernels();  // nullptr where the build hasn't got it

}  // namespace pagemill
