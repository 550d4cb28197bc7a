#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/attention_tile.h"

namespace pagemill {
namespace {

void transpose(const float* const* rows, int32_t count, int32_t head_dim, float* out) {
  const int32_t padded = (count + 15) / 16 * 16;
  for (int32_t d = 0; d < head_dim; ++d) {
    float* line = out + static_cast<int64_t>(d) * kTilePositions;
    for (int32_t j = 0; j < count; ++j) line[j] = rows[j][d];
    std::fill(line + count, line + padded, 0.0f);
  }
}

void multiply(const float* a, int32_t lda, const float* const* b_rows, float* c, int32_t ldc,
              int32_t num_rows, int32_t num_columns, int32_t depth, bool accumulate) {
  for (int32_t i = 0; i < num_rows; ++i) {
    float* line = c + static_cast<int64_t>(i) * ldc;
    const float* factors = a + static_cast<int64_t>(i) * lda;
    if (!accumulate) std::fill(line, line + num_columns, 0.0f);
    for (int32_t k = 0; k < depth; ++k) {
      const float factor = factors[k];
      const float* b = b_rows[k];
      for (int32_t j = 0; j < num_columns; ++j) line[j] += factor * b[j];
    }
  }
}

float softmax(float* scores, int32_t visible, int32_t padded, float* maximum, float* sum) {
  float highest = *maximum;
  for (int32_t j = 0; j < visible; ++j) highest = std::max(highest, scores[j]);
  float total = 0.0f;
  for (int32_t j = 0; j < visible; ++j) {
    scores[j] = std::exp(scores[j] - highest);
    total += scores[j];
  }
  std::fill(scores + visible, scores + padded, 0.0f);
  const float factor = visible == 0 ? 1.0f : std::exp(*maximum - highest);
  *maximum = highest;
  *sum = *sum * factor + total;
  return factor;
}

void scale(float* values, int32_t count, float factor) {
  for (int32_t i = 0; i < count; ++i) values[i] *= factor;
}

constexpr AttentionTileKernels kKernels{transpose, multiply, softmax, scale};

}  // namespace

const AttentionTileKernels* portable_tile_kernels() { return &kKernels; }

}  // namespace pagemill
