// Attention of some queries over a range of an int8 cache's positions: the work of one task.
#pragma once

#include <cstdint>

#include "cpu/kv_cache.h"

namespace pagemill {

// Queries of one KV head, rounded to 16 bits, over the positions [start, end) of a block table;
// start is a multiple of 16. Query i sees positions up to and with last_positions[i].
//
// results [num_queries][head_dim] become sums of values, each with its weight exp(score - maximum);
// sums those of the weights. A query that sees none of the range has maximum -infinity and zeros.
// results begins on a cache line and has room for a multiple of 32 queries.
struct QuantizedRange {
  const KvCache& cache;
  int32_t layer, kv_head;
  const int32_t* table;
  int32_t start, end;
  int32_t num_queries;
  const int16_t* queries;     // [num_queries][head_dim]
  const float* query_scales;  // with the softmax's factor
  const int32_t* last_positions;
  float* results;
  float* maxima;
  float* sums;

  struct Unit {
    const int8_t *keys, *values;  // of 16 positions, see KvCache
    const float *key_scales, *value_scales;
  };
  // The unit that begins at `position`, a multiple of 16.
  Unit unit(int32_t position) const {
    const int32_t block_size = cache.block_size(), offset = position % block_size;
    const auto head = cache.head(layer, table[position / block_size], kv_head);
    const int64_t place = int64_t{offset} * cache.head_dim();
    return {head.keys + place, head.values + place, head.scales + offset,
            head.scales + block_size + offset};
  }

  // Asks for a unit's K and V: the system's own prefetching doesn't know the block table.
  void prefetch(int32_t position) const {
    if (position >= end) return;
    const Unit next = unit(position);
    for (int64_t i = 0; i < int64_t{KvCache::kUnit} * cache.head_dim(); i += 64) {
      __builtin_prefetch(next.keys + i);
      __builtin_prefetch(next.values + i);
    }
  }
};

// On whole numbers: scores are sums of 16-bit products, exact in 32 bits; weights, each multiplied
// by its value's scale, are rounded to 16 bits for the product with the values.
void attend_on_integers(const QuantizedRange& range);

// In tiles of bfloat16, to which queries and weights are rounded; K and V are exact in it. Worth it
// for many queries. Only where instruction_set() is kAmx.
void attend_in_tiles(const QuantizedRange& range);

}  // namespace pagemill
