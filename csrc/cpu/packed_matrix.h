// The weights of a linear layer, packed once for the matrix kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "cpu/aligned.h"
#include "cpu/input_rows.h"
#include "cpu/matrix_tile.h"
#include "cpu/tile_product.h"

namespace pagemill {

enum class WeightKind { kFloat32, kBfloat16, kInt8 };

// Columns of the product that a kernel works on at once, and the most rows.
constexpr int32_t kPanelColumns = 16;
constexpr int32_t kTileRows = 6;

// The kernels of the instruction set in use.
const MatrixTileKernels& matrix_kernels();

// Rounds to nearest, ties to even; a NaN stays one.
uint16_t to_bfloat16(float value);

// A weight matrix [outputs, inputs] in panels of 16 outputs, padded with zeros: all of a panel's
// numbers stand in the order in which a kernel reads them. Immutable, so safe to share.
//
// kBfloat16 and kInt8 stand in pairs of neighbouring inputs, as the instructions for 16-bit numbers
// want them, and 16 pairs of a panel are one tile of tile_product.h.
//
// kInt8: rounded to 8 bits. A weight is the byte, times a whole factor (1 to 31) of its group of 32
// neighbouring inputs, times its output's scale. Bytes times factors fit into the 16 bits that the
// instructions take, so a product gets by with one scale an output, and the groups cost nothing in
// its inner loop. Activations are rounded too, see InputRows; in which form depends on the instruction
// set and on the number of rows.
class PackedMatrix {
 public:
  // Reads `weight` [outputs][inputs]. Throws std::invalid_argument for sizes below 1, or inputs
  // above 65,536.
  PackedMatrix(const float* weight, int32_t outputs, int32_t inputs, WeightKind kind);

  int32_t outputs() const { return outputs_; }
  int32_t inputs() const { return inputs_; }
  WeightKind kind() const { return kind_; }
  int64_t num_bytes() const;

  // Writes the `inputs` weights of an output as they were rounded.
  void unpack_row(int32_t output, float* out) const;

  // Makes `rows` ready for `num_rows` rows of this matrix's inputs.
  void prepare(InputRows& rows, int32_t num_rows) const { prepare_part(rows, num_rows, num_rows); }

  // The same for some rows out of `of_rows`: a row's product is then the same as among all of them
  // (but for the order of sums in bfloat16 on AVX-512 without tiles).
  void prepare_part(InputRows& rows, int32_t num_rows, int32_t of_rows) const {
    rows.resize(row_form(of_rows), num_rows, inputs_, depth_);
  }

  // out[i][j] (+)= sum over k of rows[i][k] * weight[j][k], + bias[j] unless it is null.
  // `accumulate` adds to what `out` holds: a residual. Runs on the shared thread pool.
  void multiply(const InputRows& rows, const float* bias, bool accumulate, float* out) const;

  // As multiply() without bias, for the outputs of some panels alone, the same to the last bit.
  // `panels`: ascending, panel p holds the outputs from p * kPanelColumns. The other numbers of `out`
  // stay as they are.
  void multiply_panels(const InputRows& rows, std::span<const int32_t> panels, float* out) const;

  // With gates in the first half of the outputs: gated[i][j] = silu(gate j) * output (half + j), for
  // which `gated` was prepared by a matrix of that many inputs. False, and nothing done, where no
  // kernel does that at once: then silu_mul() follows on the product.
  bool multiply_gated(const InputRows& rows, const float* bias, InputRows& gated) const;

 private:
  // int8: inputs of a group, and the largest magnitudes of bytes and factors.
  static constexpr int32_t kGroup = 32, kWeightLimit = 127, kMaxFactor = 31;
  // Inputs whose products go into one exact sum: 127 * 31 * 2047 * 256 < 2^31.
  static constexpr int32_t kSection = 8 * kGroup;
  static_assert(int64_t{kWeightLimit} * kMaxFactor * static_cast<int64_t>(InputRows::kLimit) *
                    kSection <
                int64_t{1} << 31);

  struct Call;  // one product's operands
  RowForm row_form(int32_t num_rows) const;
  void check(const InputRows& rows, const float* out) const;
  TileProduct tile_product(const InputRows& rows, const float* bias, bool accumulate, float* out,
                           uint16_t* gated) const;
  void multiply_tiles(const InputRows& rows, const float* bias, bool accumulate, float* out,
                      uint16_t* gated) const;
  void pack_panel(const float* weight, int32_t panel);
  void pack_int8(const float* row, int32_t panel, int32_t column);
  const int16_t* widen_int8(const Call& call, int32_t panel) const;
  void multiply_int8(const Call& call, int32_t first_row, int32_t last_row, int32_t panel) const;
  void multiply_float(const Call& call, int32_t first_row, int32_t last_row, int32_t panel) const;
  void store_tile(const Call& call, const float* sums, int32_t first_row, int32_t num_rows,
                  int32_t panel) const;
  int64_t pair_place(int32_t panel, int32_t input, int32_t column) const;
  int64_t panel_elements() const { return int64_t{depth_} * kPanelColumns; }

  int32_t outputs_, inputs_;
  int32_t depth_;  // inputs, but for kFloat32 padded to groups of 32
  int32_t num_panels_;
  WeightKind kind_;
  // One of these holds the panels: float32 [panel][depth][16], else [panel][depth / 2][16][2].
  AlignedVector<float> float32_;
  AlignedVector<uint16_t> bfloat16_;
  AlignedVector<int8_t> int8_;
  AlignedVector<uint8_t> factors_;  // int8: [panel][group][16]
  AlignedVector<float> scales_;     // int8: [panel][16]
};

}  // namespace pagemill
