#include <algorithm>
#include <cmath>

#include "cpu/quantized_panels.h"

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

void widen(const int8_t* source, int64_t count, int16_t* out) { std::copy_n(source, count, out); }

void score(const int16_t* queries, int32_t num_rows, int32_t head_dim, const QuantizedTile& tile,
           int32_t padded, float* scores) {
  score_by_panels(*portable_matrix_kernels(), queries, num_rows, head_dim, tile, padded, scores);
}

void add_values(const int16_t* weights, int32_t num_rows, int32_t head_dim,
                const QuantizedTile& tile, int32_t padded, const float* factors, float scale,
                float* results) {
  add_values_by_panels(*portable_matrix_kernels(), weights, num_rows, head_dim, tile, padded,
                       results, [&](const int32_t* sums, float* out) {
                         accumulate(sums, num_rows, factors, scale, out, head_dim);
                       });
}

constexpr QuantizedTileKernels kKernels{widen, score, softmax, add_values};

}  // namespace

const QuantizedTileKernels* portable_quantized_kernels() { return &kKernels; }

}  // namespace pagemill
