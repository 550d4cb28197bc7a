// The left side of a matrix product, in the form that the product wants.
#pragma once

#include <cstdint>

#include "cpu/aligned.h"

namespace pagemill {

// kInt16: rounded to 12 bits with one scale a row, for int8 weights: where the instructions take
// 16-bit operands anyway, and with 8 bits a small model answers differently at every tenth token.
// kTiles: bfloat16, in the tiles of tile_product.h.
enum class RowForm { kFloat32, kInt16, kTiles };

// Rows of activations. Memory is kept from one product to the next.
class InputRows {
 public:
  // The largest magnitude of a row of kInt16.
  static constexpr float kLimit = 2047.0f;

  // Makes room for `num_rows` rows of `count` numbers, padded with zeros to `depth`; for kTiles a
  // multiple of 32.
  void resize(RowForm form, int32_t num_rows, int32_t count, int32_t depth);

  // Where a row may be computed in place, or else null: either way it is then given to `set`.
  float* place(int32_t row);

  // Takes a row of `count` numbers. Rows may be set from several threads at a time.
  void set(int32_t row, const float* values);

  RowForm form() const { return form_; }
  int32_t num_rows() const { return num_rows_; }
  int32_t depth() const { return depth_; }
  const float* float32(int32_t row) const { return float32_.data() + int64_t{row} * depth_; }
  const int16_t* int16(int32_t row) const { return int16_.data() + int64_t{row} * depth_; }
  const float* scales(int32_t row) const { return scales_.data() + row; }  // kInt16 only
  const uint16_t* tiles() const { return tiles_.data(); }
  uint16_t* tiles() { return tiles_.data(); }

 private:
  RowForm form_ = RowForm::kFloat32;
  int32_t num_rows_ = 0, count_ = 0, depth_ = 0;
  AlignedVector<float> float32_;
  AlignedVector<int16_t> int16_;
  AlignedVector<float> scales_;
  AlignedVector<uint16_t> tiles_;
};

}  // namespace pagemill
