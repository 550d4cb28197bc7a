#include "cpu/packed_matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "cpu/thread_pool.h"

namespace pagemill {
namespace {

constexpr int32_t kMaxInputs = 65536;

int32_t ceil_div(int32_t a, int32_t b) { return (a + b - 1) / b; }

}  // namespace

uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

PackedMatrix::PackedMatrix(const float* weight, int32_t outputs, int32_t inputs, WeightKind kind)
    : outputs_(outputs), inputs_(inputs), depth_(inputs), kind_(kind) {
  if (outputs < 1 || inputs < 1 || inputs > kMaxInputs) {
    throw std::invalid_argument("a packed matrix has at least 1 output and 1 to 65536 inputs");
  }
  if (weight == nullptr) throw std::invalid_argument("null weight");
  num_panels_ = ceil_div(outputs, kPanelColumns);
  if (kind != WeightKind::kFloat32) depth_ = ceil_div(inputs, kGroup) * kGroup;
  if (kind == WeightKind::kInt8) {
    factors_.resize(int64_t{num_panels_} * depth_ / kGroup * kPanelColumns, 1);
    scales_.resize(int64_t{num_panels_} * kPanelColumns);
  }
  const int64_t elements = num_panels_ * panel_elements();
  switch (kind) {
    case WeightKind::kFloat32: float32_.resize(elements); break;
    case WeightKind::kBfloat16: bfloat16_.resize(elements); break;
    case WeightKind::kInt8: int8_.resize(elements); break;
  }
  shared_pool()->run(num_panels_, [&](int32_t panel, int32_t) { pack_panel(weight, panel); });
}

// Where a weight stands in panels of pairs.
int64_t PackedMatrix::pair_place(int32_t panel, int32_t input, int32_t column) const {
  return panel * panel_elements() + int64_t{input / 2} * 2 * kPanelColumns + 2 * column + input % 2;
}

void PackedMatrix::pack_panel(const float* weight, int32_t panel) {
  const int32_t last = std::min(outputs_, (panel + 1) * kPanelColumns);
  for (int32_t output = panel * kPanelColumns; output < last; ++output) {
    const float* row = weight + int64_t{output} * inputs_;
    const int32_t column = output % kPanelColumns;
    if (kind_ == WeightKind::kInt8) {
      pack_int8(row, panel, column);
      continue;
    }
    for (int32_t k = 0; k < inputs_; ++k) {
      if (kind_ == WeightKind::kFloat32) {
        float32_[panel * panel_elements() + int64_t{k} * kPanelColumns + column] = row[k];
      } else {
        bfloat16_[pair_place(panel, k, column)] = to_bfloat16(row[k]);
      }
    }
  }
}

void PackedMatrix::pack_int8(const float* row, int32_t panel, int32_t column) {
  const auto largest_of = [&](int32_t first, int32_t last) {
    float largest = 0.0f;
    for (int32_t k = first; k < last; ++k) largest = std::max(largest, std::fabs(row[k]));
    return largest;
  };
  const float scale = largest_of(0, inputs_) / (kWeightLimit * kMaxFactor);
  scales_[int64_t{panel} * kPanelColumns + column] = scale;
  if (scale == 0.0f) return;
  for (int32_t first = 0; first < inputs_; first += kGroup) {
    const int32_t last = std::min(inputs_, first + kGroup);
    const float steps = largest_of(first, last) / (kWeightLimit * scale);
    const int32_t factor = std::clamp(static_cast<int32_t>(std::ceil(steps - 1e-4f)), 1, kMaxFactor);
    factors_[(int64_t{panel} * depth_ / kGroup + first / kGroup) * kPanelColumns + column] =
        static_cast<uint8_t>(factor);
    const float inverse = 1.0f / (scale * static_cast<float>(factor));
    for (int32_t k = first; k < last; ++k) {
      const float rounded = std::nearbyint(row[k] * inverse);
      int8_[pair_place(panel, k, column)] =
          static_cast<int8_t>(std::clamp<float>(rounded, -kWeightLimit, kWeightLimit));
    }
  }
}

void PackedMatrix::unpack_row(int32_t output, float* out) const {
  const int32_t panel = output / kPanelColumns, column = output % kPanelColumns;
  const int64_t start = panel * panel_elements();
  if (kind_ == WeightKind::kFloat32) {
    const float* source = float32_.data() + start + column;
    for (int32_t k = 0; k < inputs_; ++k) out[k] = source[int64_t{k} * kPanelColumns];
  } else if (kind_ == WeightKind::kBfloat16) {
    const uint16_t* source = bfloat16_.data() + start + 2 * column;
    for (int32_t k = 0; k < inputs_; ++k) {
      const uint32_t bits = source[k / 2 * 2 * kPanelColumns + k % 2];
      out[k] = std::bit_cast<float>(bits << 16);
    }
  } else {
    const uint8_t* factors = factors_.data() + start / kGroup + column;
    for (int32_t k = 0; k < inputs_; ++k) {
      const int32_t whole =
          int8_[pair_place(panel, k, column)] * factors[k / kGroup * kPanelColumns];
      out[k] = static_cast<float>(whole) * scales_[int64_t{panel} * kPanelColumns + column];
    }
  }
}

int64_t PackedMatrix::num_bytes() const {
  return static_cast<int64_t>(float32_.size() * sizeof(float) +
                              bfloat16_.size() * sizeof(uint16_t) + int8_.size() +
                              factors_.size() + scales_.size() * sizeof(float));
}

}  // namespace pagemill
