#include <algorithm>
#include <bit>
#include <cmath>

#include "cpu/matrix_tile.h"
#include "cpu/packed_matrix.h"

namespace pagemill {
namespace {

float widen(float value) { return value; }
float widen(uint16_t value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }

template <typename Weight>
void multiply(const float* rows, int64_t stride, const Weight* panel, int32_t depth,
              int32_t num_rows, float* sums) {
  std::fill_n(sums, num_rows * kPanelColumns, 0.0f);
  for (int32_t k = 0; k < depth; ++k) {
    float weights[kPanelColumns];
    for (int32_t j = 0; j < kPanelColumns; ++j) {
      weights[j] = widen(panel[int64_t{k} * kPanelColumns + j]);
    }
    for (int32_t i = 0; i < num_rows; ++i) {
      const float factor = rows[i * stride + k];
      for (int32_t j = 0; j < kPanelColumns; ++j) sums[i * kPanelColumns + j] += factor * weights[j];
    }
  }
}

void multiply_int8(const int16_t* rows, int64_t stride, const int8_t* panel, int32_t depth,
                   int32_t num_rows, int32_t* sums) {
  std::fill_n(sums, num_rows * kPanelColumns, 0);
  for (int32_t k = 0; k < depth; k += 2) {
    const int8_t* weights = panel + int64_t{k} * kPanelColumns;
    for (int32_t i = 0; i < num_rows; ++i) {
      const int32_t first = rows[i * stride + k], second = rows[i * stride + k + 1];
      for (int32_t j = 0; j < kPanelColumns; ++j) {
        sums[i * kPanelColumns + j] += first * weights[2 * j] + second * weights[2 * j + 1];
      }
    }
  }
}

float quantize(const float* row, int32_t count, int32_t padded, float limit, int16_t* out) {
  float largest = 0.0f;
  for (int32_t k = 0; k < count; ++k) largest = std::max(largest, std::fabs(row[k]));
  const float inverse = largest > 0.0f ? limit / largest : 0.0f;
  for (int32_t k = 0; k < count; ++k) {
    out[k] = static_cast<int16_t>(std::nearbyint(row[k] * inverse));
  }
  std::fill(out + count, out + padded, int16_t{0});
  return largest / limit;
}

constexpr MatrixTileKernels kKernels{multiply<float>, multiply<uint16_t>, multiply_int8, quantize};

}  // namespace

const MatrixTileKernels* portable_matrix_kernels() { return &kKernels; }

}  // namespace pagemill
