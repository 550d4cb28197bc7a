// Attention over an int8 cache, some queries and a tile of positions at a time, in several
// instruction sets.
#pragma once

#include <cstdint>

namespace pagemill {

// Queries that go over a tile together, and positions of a tile: enough that the softmax's
// bookkeeping counts for little, few enough that K and then V stay in the nearest caches.
constexpr int32_t kTileQueries = 6;
constexpr int32_t kQuantizedPositions = 128;

// K and V of a tile, in units of 16 positions as the cache has them (KvCache); as many units as
// hold the positions that are asked for.
struct QuantizedTile {
  const int8_t* keys[kQuantizedPositions / 16];
  const int8_t* values[kQuantizedPositions / 16];
  // The same widened to 16 bits, all units in a row; only for kernels that have widen().
  const int16_t *wide_keys, *wide_values;
  const float* key_scales;
};

struct QuantizedTileKernels {
  // Widens `count` numbers, a multiple of 32; null: the kernels read K and V from the cache.
  void (*widen)(const int8_t* source, int64_t count, int16_t* out);

  // scores[i][j] = queries[i] . key j, times the key's scale, for i < num_rows and whole units of
  // positions j < padded; rows of scores are kQuantizedPositions apart.
  void (*score)(const int16_t* queries, int32_t num_rows, int32_t head_dim,
                const QuantizedTile& tile, int32_t padded, float* scores);

  // Online softmax of one query over a tile. scores[j] * scale are the scores of positions
  // j < visible; out[j] = exp(score - new maximum) * factors[j], rounded, and 0 from `visible` up to
  // `padded`, a multiple of 16. Updates maximum and sum (of the weights before rounding); returns
  // the factor that earlier results have to be scaled by. `visible` is at least 1.
  float (*softmax)(const float* scores, float scale, int32_t visible, int32_t padded,
                   const float* factors, float* maximum, float* sum, int16_t* out);

  // results[i] = results[i] * factors[i] + scale * sum over j < padded of weights[i][j] * value j;
  // rows of weights are kQuantizedPositions apart.
  void (*add_values)(const int16_t* weights, int32_t num_rows, int32_t head_dim,
                     const QuantizedTile& tile, int32_t padded, const float* factors, float scale,
                     float* results);
};

const QuantizedTileKernels* portable_quantized_kernels();
// nullptr where the build hasn't got them.
const QuantizedTileKernels* avx2_quantized_kernels();
const QuantizedTileKernels* avx512_quantized_kernels();

}  // namespace pagemill
