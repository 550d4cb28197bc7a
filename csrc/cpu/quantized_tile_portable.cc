#include <algorithm>
#include <cmath>

#include "cpu/packed_matrix.h"
#include "cpu/quantized_tile.h"

namespace pagemill {
namespace {

float softmax(const float* scores, float scale, int32_t visible, int32_t padded,
              const float* factors, float* maximum, float* sum, int16_t* out) {
  const float highest = std::max(*maximum, *std::max_element(scores, scores + visible) * scale);
  float total = 0.0f;
  for (int32_t j = 0; j < visible; ++j) {
    const float weight = std::exp(scores[j] * scale - highest);
    total += weight;
    out[j] = static_cast<int16_t>(std::nearbyint(weight * factors[j]));
  }
  std::fill(out + visible, out + padded, int16_t{0});
  const float factor = std::exp(*maximum - highest);
  *maximum = highest;
  *sum = *sum * factor + total;
  return factor;
}

void accumulate(const int32_t* sums, int32_t num_rows, const float* factors, float scale,
                float* out, int64_t out_stride) {
  for (int32_t i = 0; i < num_rows; ++i, sums += kPanelColumns, out += out_stride) {
    for (int32_t j = 0; j < kPanelColumns; ++j) {
      out[j] = out[j] * factors[i] + static_cast<float>(sums[j]) * scale;
    }
  }
}

constexpr QuantizedTileKernels kKernels{softmax, accumulate};

}  // namespace

const QuantizedTileKernels* portable_quantized_kernels() { return &kKernels; }

}  // namespace pagemill
