#include "cpu/input_rows.h"

#include <algorithm>

#include "cpu/packed_matrix.h"
#include "cpu/tile_product.h"

namespace pagemill {

void InputRows::resize(RowForm form, int32_t num_rows, int32_t count, int32_t depth) {
  form_ = form;
  num_rows_ = num_rows;
  count_ = count;
  depth_ = depth;
  switch (form) {
    case RowForm::kFloat32: grow(float32_, int64_t{num_rows} * depth); break;
    case RowForm::kInt16:
      grow(int16_, int64_t{num_rows} * depth);
      grow(scales_, num_rows);
      break;
    case RowForm::kTiles: {
      // Whole tiles: what stands in rows that aren't there becomes sums that no one reads.
      const int64_t height = (int64_t{num_rows} + kRowTileHeight - 1) / kRowTileHeight;
      grow(tiles_, height * kRowTileHeight * depth);
      break;
    }
  }
}

float* InputRows::place(int32_t row) {
  return form_ == RowForm::kFloat32 ? float32_.data() + int64_t{row} * depth_ : nullptr;
}

void InputRows::set(int32_t row, const float* values) {
  switch (form_) {
    case RowForm::kFloat32:
      if (values != place(row)) std::copy_n(values, count_, place(row));
      std::fill(place(row) + count_, place(row) + depth_, 0.0f);
      break;
    case RowForm::kInt16:
      scales_[row] = matrix_kernels().quantize(values, count_, depth_, kLimit,
                                               int16_.data() + int64_t{row} * depth_);
      break;
    case RowForm::kTiles: {
      const int64_t first = int64_t{row / kRowTileHeight} * kRowTileHeight * depth_;
      avx512_tile_row()(values, count_, depth_,
                        tiles_.data() + first + row % kRowTileHeight * kRowTileDepth);
      break;
    }
  }
}

}  // namespace pagemill
