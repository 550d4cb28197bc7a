// The weights of a linear layer, packed once for the matrix kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace pagemill {

// Columns of the product that a kernel works on at once, and the most rows.
constexpr int32_t kPanelColumns = 16;
constexpr int32_t kTileRows = 6;

enum class WeightKind { kFloat32, kBfloat16, kInt8 };

// A weight matrix [outputs, inputs] in panels of 16 outputs, padded with zeros: all of a panel's
// numbers stand in the order in which a kernel reads them. Immutable, so safe to share.
//
// kInt8: rounded to 8 bits, one scale for each output (largest magnitude / 127). The activations
// are rounded for each token when they come in, to 12 bits, or to as many as keep the sums exact
// in 32 bits: the instructions take 16-bit operands anyway, and with 8 bits a small model answers
// differently at every tenth token.
class PackedMatrix {
 public:
  // Reads `weight` [outputs][inputs]. Throws std::invalid_argument for sizes below 1, or inputs
  // above 65,536.
  PackedMatrix(const float* weight, int32_t outputs, int32_t inputs, WeightKind kind);

  int32_t outputs() const { return outputs_; }
  int32_t inputs() const { return inputs_; }
  int64_t num_bytes() const;

  // out[i][j] (+)= sum over k of input[i][k] * weight[j][k], + bias[j] unless it is null.
  // `accumulate` adds to what `out` holds: a residual. Runs on the shared thread pool.
  void multiply(const float* input, int32_t num_rows, const float* bias, bool accumulate,
                float* out) const;

 private:
  struct Inputs;  // the activations of one call, quantised where the kind wants it
  void multiply_tile(const Inputs& inputs, int32_t first_row, int32_t num_rows, int32_t panel,
                     const float* bias, bool accumulate, float* out) const;
  int64_t panel_elements() const { return int64_t{depth_} * kPanelColumns; }

  int32_t outputs_, inputs_;
  int32_t depth_;  // inputs, padded to an even number for kInt8
  int32_t num_panels_;
  WeightKind kind_;
  // One of these holds the panels: [panel][depth][16], for int8 [panel][depth / 2][16][2].
  std::vector<float> float32_;
  std::vector<uint16_t> bfloat16_;
  std::vector<int8_t> int8_;
  std::vector<float> scales_;  // int8: of each output, padded to whole panels
  float activation_limit_ = 0;  // int8: what the largest activation of a token becomes
};

}  // namespace pagemill
