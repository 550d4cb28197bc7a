#include <algorithm>
#include <bit>
#include <cmath>

#include "cpu/matrix_tile.h"
#include "cpu/packed_matrix.h"

namespace pagemill {
namespace {

float widen_one(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

float weight(const float* panel, int32_t k, int32_t j) { return panel[k * kPanelColumns + j]; }
float weight(const uint16_t* panel, int32_t k, int32_t j) {
  return widen_one(panel[k / 2 * 2 * kPanelColumns + 2 * j + k % 2]);
}

template <typename Weight>
void multiply(const float* rows, int64_t stride, const Weight* panel, int32_t depth,
              int32_t num_rows, float* out, int64_t out_stride) {
  for (int32_t i = 0; i < num_rows; ++i) {
    float* sums = out + i * out_stride;
    std::fill_n(sums, kPanelColumns, 0.0f);
    for (int32_t k = 0; k < depth; ++k) {
      const float factor = rows[i * stride + k];
      for (int32_t j = 0; j < kPanelColumns; ++j) sums[j] += factor * weight(panel, k, j);
    }
  }
}

void pair_product(const int16_t* rows, int64_t row_stride, const int16_t* panel,
                  int64_t panel_stride, int64_t num_pairs, int32_t num_rows, int32_t* sums) {
  for (int32_t i = 0; i < num_rows; ++i, sums += kPanelColumns, rows += row_stride) {
    std::fill_n(sums, kPanelColumns, 0);
    for (int64_t p = 0; p < num_pairs; ++p) {
      const int16_t* weights = panel + p * panel_stride;
      const int32_t first = rows[2 * p], second = rows[2 * p + 1];
      for (int32_t j = 0; j < kPanelColumns; ++j) {
        sums[j] += first * weights[2 * j] + second * weights[2 * j + 1];
      }
    }
  }
}

void widen_int8(const int8_t* source, int64_t num_pairs, const uint8_t* factors, int16_t* out) {
  for (int64_t i = 0; i < num_pairs * 2 * kPanelColumns; ++i) {
    const int32_t factor = factors == nullptr ? 1 : factors[i / 2 % kPanelColumns];
    out[i] = static_cast<int16_t>(source[i] * factor);
  }
}

void widen_pairs(const uint16_t* source, int64_t num_pairs, float* out) {
  for (int64_t p = 0; p < num_pairs; ++p, source += 2 * kPanelColumns, out += 2 * kPanelColumns) {
    for (int32_t j = 0; j < kPanelColumns; ++j) {
      out[j] = widen_one(source[2 * j]);
      out[kPanelColumns + j] = widen_one(source[2 * j + 1]);
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

void store(const float* sums, const float* bias, bool accumulate, float* out) {
  for (int32_t j = 0; j < kPanelColumns; ++j) {
    const float value = sums[j] + (bias != nullptr ? bias[j] : 0.0f);
    out[j] = accumulate ? out[j] + value : value;
  }
}

void scale_sums(const int32_t* sums, const float* scales, const float* row_scales,
                int32_t num_rows, bool accumulate, float* out, int64_t out_stride) {
  for (int32_t i = 0; i < num_rows; ++i, sums += kPanelColumns, out += out_stride) {
    const float row = row_scales == nullptr ? 1.0f : row_scales[i];
    for (int32_t j = 0; j < kPanelColumns; ++j) {
      const float value = static_cast<float>(sums[j]) * (scales[j] * row);
      out[j] = accumulate ? out[j] + value : value;
    }
  }
}

constexpr MatrixTileKernels kKernels{
    multiply<float>, multiply<uint16_t>, pair_product, widen_int8,
    widen_pairs,     quantize,           store,        scale_sums};

}  // namespace

const MatrixTileKernels* portable_matrix_kernels() { return &kKernels; }

}  // namespace pagemill
