// The product of rows in bfloat16 and a packed matrix, on instructions that take pairs of bfloat16.
#pragma once

#include <cstdint>

namespace pagemill {

// Rows stand in tiles of 16 rows and 32 inputs, so that a tile is 1 KiB in one piece.
constexpr int32_t kRowTileHeight = 16, kRowTileDepth = 32;
constexpr int32_t kRowTileElements = kRowTileHeight * kRowTileDepth;

// One product's operands; see packed_matrix.h for the weights' layout and the meaning of the rest.
// Weights are `bfloat16`, or else `int8` with factors and scales: a byte times its factor is
// rounded to bfloat16, and the sums are multiplied by the scales.
struct TileProduct {
  const uint16_t* rows;  // [num_rows / 16, rounded up][depth / 32][16][32]
  int32_t num_rows, depth;
  const uint16_t* bfloat16;  // [panel][depth / 2][16][2]
  const int8_t* int8;        // the same
  const uint8_t* factors;    // [panel][depth / 32][16]
  const float* scales;       // [panel][16]
  int32_t outputs;
  const float* bias;
  bool accumulate;
  float* out;
  // Not null: the first half of the outputs are gates g, the second u, and silu(g) * u is written
  // here instead of to `out`, as rows in tiles of depth outputs / 2, a multiple of 32.
  uint16_t* gated;

  int64_t panel_elements() const { return int64_t{depth} * 16; }
  int32_t depth_tiles() const { return depth / kRowTileDepth; }
};

// Rows and panels of one task; first_row is a multiple of 16. With `gated`, panels are those of gates.
struct TileTask {
  int32_t first_row, last_row, first_panel, last_panel;
};

using TileProductKernel = void (*)(const TileProduct& product, const TileTask& task);

// bfloat16 of `count` numbers to a row of tiles, 32 numbers every kRowTileElements, zeros up to
// `padded`, a multiple of 32. A NaN stays one.
using TileRowKernel = void (*)(const float* row, int32_t count, int32_t padded, uint16_t* out);

// nullptr where the build hasn't got them. The second uses tiles; it alone serves `gated`.
TileProductKernel avx512_tile_product();
TileProductKernel amx_tile_product();
TileRowKernel avx512_tile_row();

}  // namespace pagemill
