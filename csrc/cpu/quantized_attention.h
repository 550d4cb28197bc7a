// Causal attention over an int8 KV cache, on whole numbers throughout.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/batch_layout.h"
#include "cpu/kv_cache.h"

namespace pagemill {

// Queries rounded to 16 bits, one scale for each token and head; the scale holds the softmax's
// factor too. [token][head][head_dim]
struct QuantizedQueries {
  std::vector<int16_t> values;
  std::vector<float> scales;

  void resize(int32_t num_tokens, int32_t num_heads, int32_t head_dim);

  // Takes the query of a head, head_dim numbers; `index` is token * num_heads + head.
  void set(int64_t index, const float* head, int32_t head_dim, float scale);
};

struct QuantizedAttentionArgs {
  const QuantizedQueries& queries;
  const KvCache& cache;  // kInt8
  int32_t layer;
  BatchLayout layout;  // must have passed check()
  int32_t num_heads;   // a multiple of the cache's KV heads
  float* out;          // [token][num_heads][head_dim]
};

// Which queries go over which positions together, and what is left to be merged: follows from the
// layout alone, so that one schedule serves all layers of a step.
class AttentionSchedule {
 public:
  // A token's query for the heads of one KV head.
  struct Member {
    int32_t token;
    int32_t position;  // it sees positions up to and with this one
    int32_t part;      // place of its partial result, -1: there is no other part
  };
  struct Task {
    const int32_t* table;  // block table
    int32_t start, end;    // positions, start a multiple of the block size
    int32_t first_member, num_members;
    int32_t kv_head;
    int64_t cost;
  };

  // Rows of one or a few queries whose block tables begin alike go over those blocks together
  // (`share_prefixes`); a row with more positions than its share of the work is cut.
  AttentionSchedule(const BatchLayout& layout, int32_t block_size, int32_t num_kv_heads,
                    int32_t num_threads, bool share_prefixes);

  const std::vector<Task>& tasks() const { return tasks_; }
  const std::vector<Member>& members() const { return members_; }
  int32_t num_parts() const { return num_parts_; }  // for each KV head
  // Tokens whose result is merged from several parts; parts of a token are neighbours.
  struct Merge {
    int32_t token, first_part, num_parts;
  };
  const std::vector<Merge>& merges() const { return merges_; }
  // Positions read from the cache, counted for each KV head and task: what sharing saves.
  int64_t positions_read() const { return positions_read_; }

 private:
  struct Span;

  std::vector<Task> tasks_;
  std::vector<Member> members_;
  std::vector<Merge> merges_;
  int32_t num_parts_ = 0;
  int64_t positions_read_ = 0;
};

// Computes `out` on the shared thread pool.
//
// Scores are sums of 16-bit products (query x key, exact in 32 bits); the softmax is kept online
// (Milakov and Gimelshein 2018, arXiv:1805.02867), and its weights, each multiplied by its value's
// scale, are rounded to 16 bits for the product with the values.
void quantized_attention(const QuantizedAttentionArgs& args, const AttentionSchedule& schedule);

}  // namespace pagemill
