// Causal attention over a paged KV cache, for a batch of rows of any length.
#pragma once

#include <cstdint>

#include "cpu/batch_layout.h"

namespace pagemill {

// One call's operands. Pointers stay the caller's; float data must not overlap.
//
// query, out: [query_start[num_rows]][num_heads][head_dim]; the query's tokens may stand further
// apart, query_stride numbers, as slices of a fused product do
// key_cache, value_cache: [num_blocks][block_size][num_kv_heads][head_dim]
struct PagedAttentionArgs {
  const float* query;
  int64_t query_stride;
  const float* key_cache;
  const float* value_cache;
  float* out;
  BatchLayout layout;
  int32_t num_blocks;
  int32_t num_heads;
  int32_t num_kv_heads;
  int32_t head_dim;
  int32_t block_size;
  float scale;
};

// Throws std::invalid_argument, before anything is computed, when a size, slot, length or block
// id is out of its range.
void check(const PagedAttentionArgs& args);

// Computes `out` on the shared thread pool. `args` must have passed check().
//
// Query heads that share a KV head, and neighbouring queries of a row, go over each K and V
// together; the softmax is kept online (Milakov and Gimelshein 2018, arXiv:1805.02867).
void paged_attention(const PagedAttentionArgs& args);

}  // namespace pagemill
