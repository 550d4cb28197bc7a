// The left side of a matrix product, in the form that a kind of weights wants.
#pragma once

#include <cstdint>
#include <vector>

namespace pagemill {

enum class WeightKind { kFloat32, kBfloat16, kInt8 };

// Rows of activations: float32, or for int8 weights rounded to 12 bits with one scale a row. The
// instructions take 16-bit operands anyway, and with 8 bits a small model answers differently at
// every tenth token. Memory is kept from one product to the next.
class InputRows {
 public:
  // The largest magnitude of a rounded row.
  static constexpr float kLimit = 2047.0f;

  // Makes room for `num_rows` rows of `count` numbers, padded with zeros to `depth`.
  void resize(WeightKind kind, int32_t num_rows, int32_t count, int32_t depth);

  // Where a row may be computed in place, or else null: then it is given to `set`.
  float* place(int32_t row);

  // Takes a row of `count` numbers. Rows may be set from several threads at a time.
  void set(int32_t row, const float* values);

  WeightKind kind() const { return kind_; }
  int32_t num_rows() const { return num_rows_; }
  int32_t depth() const { return depth_; }
  const float* float32(int32_t row) const { return float32_.data() + int64_t{row} * depth_; }
  const int16_t* int16(int32_t row) const { return int16_.data() + int64_t{row} * depth_; }
  const float* scales(int32_t row) const { return scales_.data() + row; }  // int8 only

 private:
  WeightKind kind_ = WeightKind::kFloat32;
  int32_t num_rows_ = 0, count_ = 0, depth_ = 0;
  std::vector<float> float32_;
  std::vector<int16_t> int16_;
  std::vector<float> scales_;
};

}  // namespace pagemill
