// A decoder of the Llama family on the CPU kernels: one call computes a step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cpu/batch_layout.h"
#include "cpu/input_rows.h"
#include "cpu/kv_cache.h"
#include "cpu/packed_matrix.h"
#include "cpu/quantized_attention.h"

namespace pagemill {

struct DecoderShape {
  int32_t num_layers, hidden_size, inner_size, vocab_size;
  int32_t num_heads, num_kv_heads, head_dim;
  float rms_norm_eps;
};

// The tokens of a step; `layout` says which belong where. `chosen` are the tokens, by their place in
// the flat batch, whose logits are wanted; of the last num_sparse of them only the logits of the ids
// in `outputs`.
struct DecoderStep {
  const int32_t* token_ids;
  const int32_t* positions;
  const int32_t* slot_mapping;  // place of each token's K/V: block * block_size + offset
  BatchLayout layout;
  const int32_t* chosen;
  int32_t num_chosen;
  int32_t num_sparse = 0;
  std::span<const int32_t> outputs = {};
};

// Weights and the memory of a step, which is kept from step to step. One thread at a time.
//
// kInt8: of the products' weights gate_up's and the attention output's are rounded to 8 bits, half of
// the default model's. qkv, down and the head stay bfloat16: together they are four fifths of
// what rounding them all would lose, and with tiles bfloat16 is the faster one from 16 rows on.
//
// Activations between the matrix products are float32. All K/V of a layer is written before any of
// it is read, so that rows of one step may share blocks that one of them fills in that very step.
class CpuDecoder {
 public:
  // Throws std::invalid_argument for sizes that can't be.
  CpuDecoder(const DecoderShape& shape, WeightKind kind);

  // Takes a parameter [rows][columns] (a vector has one row) by its name, as weights.py names it;
  // throws std::invalid_argument for an unknown name or another shape.
  void set(const std::string& name, const float* values, int32_t rows, int32_t columns);

  // The head is the embedding, which must have been set.
  void tie_head();

  // Cosines and sines by position, each [num_positions][head_dim / 2].
  void set_rotary(const float* cos, const float* sin, int32_t num_positions);

  // Parameters that every model has and that haven't been set.
  std::vector<std::string> missing() const;

  // Writes logits [num_chosen][vocab_size]; those of sparse tokens that aren't asked for mean
  // nothing. Throws std::invalid_argument, before anything is
  // written, when a token, position, place or block is out of its range.
  void forward(KvCache& cache, const DecoderStep& step, float* logits);

  const DecoderShape& shape() const { return shape_; }
  int64_t num_bytes() const;  // of the weights

  // Whether rows that share leading blocks read them together (int8 cache).
  void set_share_prefixes(bool on) { share_prefixes_ = on; }

 private:
  struct Linear {
    std::unique_ptr<PackedMatrix> weight;
    std::vector<float> bias;
    const float* bias_or_null() const { return bias.empty() ? nullptr : bias.data(); }
  };
  struct Layer {
    std::vector<float> attention_norm, feed_forward_norm, query_norm, key_norm;
    Linear qkv, output, gate_up, down;
  };

  void check(const KvCache& cache, const DecoderStep& step);
  void set_layer(const std::string& name, const float* values, int32_t rows, int32_t columns);
  void embed(const DecoderStep& step);
  void norm_rows(const std::vector<float>& weight, const int32_t* chosen, InputRows& rows);
  void take_heads(KvCache& cache, const DecoderStep& step, int32_t layer);
  void attend(const KvCache& cache, const DecoderStep& step, int32_t layer);
  void feed_forward(const Layer& layer, int32_t num_tokens);
  void head(const DecoderStep& step, float* logits);
  bool find_panels(const DecoderStep& step);

  int32_t query_size() const { return shape_.num_heads * shape_.head_dim; }
  int32_t kv_size() const { return shape_.num_kv_heads * shape_.head_dim; }
  int32_t fused_size() const { return query_size() + 2 * kv_size(); }

  DecoderShape shape_;
  WeightKind kind_;
  WeightKind careful_kind_;  // of weights that aren't rounded to 8 bits
  bool share_prefixes_ = true;
  bool complete_ = false;  // nothing is missing
  std::shared_ptr<const PackedMatrix> embedding_, head_;  // may be one
  std::vector<float> norm_;
  std::vector<Layer> layers_;
  std::vector<float> cos_, sin_;

  // The step's memory, [token][...].
  std::vector<float> hidden_, fused_, attended_, gate_up_;
  InputRows rows_, gated_, sparse_;
  std::vector<uint8_t> wanted_;  // by panel of the head
  std::vector<int32_t> panels_;  // those that are
  QuantizedQueries queries_;
  std::optional<AttentionSchedule> schedule_;
};

}  // namespace pagemill
