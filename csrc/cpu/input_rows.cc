#include "cpu/input_rows.h"

#include <algorithm>

#include "cpu/packed_matrix.h"

namespace pagemill {

void InputRows::resize(WeightKind kind, int32_t num_rows, int32_t count, int32_t depth) {
  kind_ = kind;
  num_rows_ = num_rows;
  count_ = count;
  depth_ = depth;
  const auto elements = static_cast<size_t>(int64_t{num_rows} * depth);
  if (kind == WeightKind::kInt8) {
    if (int16_.size() < elements) int16_.resize(elements);
    if (scales_.size() < static_cast<size_t>(num_rows)) scales_.resize(num_rows);
  } else {
    if (float32_.size() < elements) float32_.resize(elements);
  }
}

float* InputRows::place(int32_t row) {
  return kind_ == WeightKind::kInt8 ? nullptr : float32_.data() + int64_t{row} * depth_;
}

void InputRows::set(int32_t row, const float* values) {
  if (kind_ == WeightKind::kInt8) {
    scales_[row] = matrix_kernels().quantize(values, count_, depth_, kLimit,
                                             int16_.data() + int64_t{row} * depth_);
  } else if (values != place(row)) {
    std::copy_n(values, count_, place(row));
  }
}

}  // namespace pagemill
