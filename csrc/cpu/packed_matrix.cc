#include "cpu/packed_matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "cpu/instruction_set.h"
#include "cpu/matrix_tile.h"
#include "cpu/thread_pool.h"

namespace pagemill {
namespace {

constexpr int32_t kMaxInputs = 65536;
constexpr int32_t kWeightLimit = 127;
constexpr int32_t kActivationLimit = 2047;
// Rows that are worked on together: their activations stay in the second-level cache while the
// panels pass by.
constexpr int32_t kRowsPerTask = 16 * kTileRows;

const MatrixTileKernels& tile_kernels() {
  if (instruction_set() == InstructionSet::kAvx2) return *avx2_matrix_kernels();
  return *portable_matrix_kernels();
}

// Rounds to nearest, ties to even; a NaN stays one.
uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

int32_t ceil_div(int32_t a, int32_t b) { return (a + b - 1) / b; }

}  // namespace

struct PackedMatrix::Inputs {
  const MatrixTileKernels& kernels;
  const float* rows;
  std::vector<int16_t> quantized;  // int8 only: [rows][depth]
  std::vector<float> scales;
};

PackedMatrix::PackedMatrix(const float* weight, int32_t outputs, int32_t inputs, WeightKind kind)
    : outputs_(outputs), inputs_(inputs), kind_(kind) {
  if (outputs < 1 || inputs < 1 || inputs > kMaxInputs) {
    throw std::invalid_argument("a packed matrix has at least 1 output and 1 to 65536 inputs");
  }
  if (weight == nullptr) throw std::invalid_argument("null weight");
  depth_ = kind == WeightKind::kInt8 ? (inputs + 1) / 2 * 2 : inputs;
  num_panels_ = ceil_div(outputs, kPanelColumns);
  const int64_t elements = num_panels_ * panel_elements();
  switch (kind) {
    case WeightKind::kFloat32: float32_.resize(elements); break;
    case WeightKind::kBfloat16: bfloat16_.resize(elements); break;
    case WeightKind::kInt8:
      int8_.resize(elements);
      scales_.resize(int64_t{num_panels_} * kPanelColumns);
      activation_limit_ = static_cast<float>(std::min(
          kActivationLimit, std::numeric_limits<int32_t>::max() / (kWeightLimit * inputs_)));
      break;
  }
  shared_pool()->run(num_panels_, [&](int32_t panel, int32_t) {
    const int32_t last = std::min(outputs_, (panel + 1) * kPanelColumns);
    for (int32_t output = panel * kPanelColumns; output < last; ++output) {
      const float* row = weight + int64_t{output} * inputs_;
      const int32_t column = output % kPanelColumns;
      const int64_t start = panel * panel_elements();
      if (kind_ == WeightKind::kInt8) {
        float largest = 0.0f;
        for (int32_t k = 0; k < inputs_; ++k) largest = std::max(largest, std::fabs(row[k]));
        const float inverse = largest > 0.0f ? kWeightLimit / largest : 0.0f;
        scales_[output] = largest / kWeightLimit;
        for (int32_t k = 0; k < inputs_; ++k) {
          int8_[start + int64_t{k / 2} * 2 * kPanelColumns + 2 * column + k % 2] =
              static_cast<int8_t>(std::nearbyint(row[k] * inverse));
        }
        continue;
      }
      for (int32_t k = 0; k < inputs_; ++k) {
        const int64_t place = start + int64_t{k} * kPanelColumns + column;
        if (kind_ == WeightKind::kFloat32) {
          float32_[place] = row[k];
        } else {
          bfloat16_[place] = to_bfloat16(row[k]);
        }
      }
    }
  });
}

int64_t PackedMatrix::num_bytes() const {
  return static_cast<int64_t>(float32_.size() * sizeof(float) +
                              bfloat16_.size() * sizeof(uint16_t) + int8_.size() +
                              scales_.size() * sizeof(float));
}

void PackedMatrix::multiply(const float* input, int32_t num_rows, const float* bias,
                            bool accumulate, float* out) const {
  if (num_rows < 0) throw std::invalid_argument("negative number of rows");
  if (num_rows == 0) return;
  if (input == nullptr || out == nullptr) throw std::invalid_argument("null pointer");
  const auto pool = shared_pool();
  Inputs inputs{tile_kernels(), input, {}, {}};
  if (kind_ == WeightKind::kInt8) {
    inputs.quantized.resize(int64_t{num_rows} * depth_);
    inputs.scales.resize(num_rows);
    const int32_t batch = std::max(1, std::min(num_rows, 16384 / depth_));
    pool->run(ceil_div(num_rows, batch), [&](int32_t index, int32_t) {
      for (int32_t i = index * batch; i < std::min(num_rows, (index + 1) * batch); ++i) {
        inputs.scales[i] =
            inputs.kernels.quantize(input + int64_t{i} * inputs_, inputs_, depth_,
                                    activation_limit_,
                                    inputs.quantized.data() + int64_t{i} * depth_);
      }
    });
  }
  // Several tasks for each thread, so that a thread that is disturbed delays no one.
  const int32_t row_groups = ceil_div(num_rows, kRowsPerTask);
  const int32_t wanted = std::max(1, 8 * pool->num_threads() / row_groups);
  const int32_t panels = std::max(1, ceil_div(num_panels_, wanted));
  const int32_t panel_groups = ceil_div(num_panels_, panels);
  pool->run(row_groups * panel_groups, [&](int32_t index, int32_t) {
    const int32_t first_row = index / panel_groups * kRowsPerTask;
    const int32_t last_row = std::min(num_rows, first_row + kRowsPerTask);
    const int32_t first_panel = index % panel_groups * panels;
    const int32_t last_panel = std::min(num_panels_, first_panel + panels);
    for (int32_t panel = first_panel; panel < last_panel; ++panel) {
      for (int32_t row = first_row; row < last_row; row += kTileRows) {
        multiply_tile(inputs, row, std::min(kTileRows, last_row - row), panel, bias, accumulate,
                      out);
      }
    }
  });
}

void PackedMatrix::multiply_tile(const Inputs& inputs, int32_t first_row, int32_t num_rows,
                                 int32_t panel, const float* bias, bool accumulate,
                                 float* out) const {
  alignas(32) float sums[kTileRows * kPanelColumns];
  const float* rows = inputs.rows + int64_t{first_row} * inputs_;
  const int64_t start = panel * panel_elements();
  const int32_t first_output = panel * kPanelColumns;
  if (kind_ == WeightKind::kFloat32) {
    inputs.kernels.float32(rows, inputs_, float32_.data() + start, depth_, num_rows, sums);
  } else if (kind_ == WeightKind::kBfloat16) {
    inputs.kernels.bfloat16(rows, inputs_, bfloat16_.data() + start, depth_, num_rows, sums);
  } else {
    alignas(32) int32_t exact[kTileRows * kPanelColumns];
    inputs.kernels.int8(inputs.quantized.data() + int64_t{first_row} * depth_, depth_,
                        int8_.data() + start, depth_, num_rows, exact);
    for (int32_t i = 0; i < num_rows; ++i) {
      const float scale = inputs.scales[first_row + i];
      for (int32_t j = 0; j < kPanelColumns; ++j) {
        sums[i * kPanelColumns + j] = static_cast<float>(exact[i * kPanelColumns + j]) * scale *
                                      scales_[first_output + j];
      }
    }
  }
  const int32_t columns = std::min(kPanelColumns, outputs_ - first_output);
  for (int32_t i = 0; i < num_rows; ++i) {
    float* target = out + int64_t{first_row + i} * outputs_ + first_output;
    const float* source = sums + i * kPanelColumns;
    for (int32_t j = 0; j < columns; ++j) {
      const float value = source[j] + (bias != nullptr ? bias[first_output + j] : 0.0f);
      target[j] = accumulate ? target[j] + value : value;
    }
  }
}

}  // namespace pagemill
