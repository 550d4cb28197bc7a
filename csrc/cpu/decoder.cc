#include "cpu/decoder.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "cpu/aligned.h"
#include "cpu/elementwise_kernels.h"
#include "cpu/paged_attention.h"
#include "cpu/row_tasks.h"
#include "cpu/tile_product.h"

namespace pagemill {
namespace {

// Reading a panel of the head and making it ready takes as long as multiplying so many rows by it.
constexpr int64_t kPanelRows = 64;

void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(std::string("decoder: ") + message);
}

}  // namespace

void CpuDecoder::check(const KvCache& cache, const DecoderStep& step) {
  complete_ = complete_ || missing().empty();
  require(complete_, "weights are missing");
  require(cache.num_layers() == shape_.num_layers && cache.head_dim() == shape_.head_dim &&
              cache.num_kv_heads() == shape_.num_kv_heads,
          "the cache is another model's");
  pagemill::check(step.layout, cache.num_blocks(), cache.block_size());
  const int32_t num_tokens = step.layout.num_tokens();
  const auto num_positions = static_cast<int64_t>(cos_.size()) / (shape_.head_dim / 2);
  const int64_t places = int64_t{cache.num_blocks()} * cache.block_size();
  for (int32_t i = 0; i < num_tokens; ++i) {
    require(step.token_ids[i] >= 0 && step.token_ids[i] < shape_.vocab_size,
            "token outside the vocabulary");
    require(step.positions[i] >= 0 && step.positions[i] < num_positions,
            "position outside the rotary table");
    require(step.slot_mapping[i] >= 0 && step.slot_mapping[i] < places,
            "place outside the cache");
  }
  for (int32_t i = 0; i < step.num_chosen; ++i) {
    require(step.chosen[i] >= 0 && step.chosen[i] < num_tokens, "chosen token outside the batch");
  }
  require(step.num_sparse >= 0 && step.num_sparse <= step.num_chosen,
          "more sparse tokens than chosen ones");
  for (const int32_t id : step.outputs) {
    require(id >= 0 && id < shape_.vocab_size, "wanted logit outside the vocabulary");
  }
}

void CpuDecoder::forward(KvCache& cache, const DecoderStep& step, float* logits) {
  check(cache, step);
  const int32_t num_tokens = step.layout.num_tokens();
  if (num_tokens == 0) return;
  grow(hidden_, int64_t{num_tokens} * shape_.hidden_size);
  grow(fused_, int64_t{num_tokens} * fused_size());
  grow(attended_, int64_t{num_tokens} * query_size());
  if (cache.kind() == KvKind::kInt8) {
    queries_.resize(num_tokens, shape_.num_heads, shape_.head_dim);
    schedule_.emplace(step.layout, cache.block_size(), shape_.num_kv_heads,
                      shared_pool()->num_threads(), share_prefixes_);
  }
  embed(step);
  for (int32_t index = 0; index < shape_.num_layers; ++index) {
    const Layer& layer = layers_[index];
    layer.qkv.weight->prepare(rows_, num_tokens);
    norm_rows(layer.attention_norm, nullptr, rows_);
    layer.qkv.weight->multiply(rows_, layer.qkv.bias_or_null(), false, fused_.data());
    take_heads(cache, step, index);
    attend(cache, step, index);
    layer.output.weight->prepare(rows_, num_tokens);
    for_rows(num_tokens, query_size(), [&](int32_t row) {
      rows_.set(row, attended_.data() + int64_t{row} * query_size());
    });
    layer.output.weight->multiply(rows_, layer.output.bias_or_null(), true, hidden_.data());
    feed_forward(layer, num_tokens);
  }
  if (step.num_chosen > 0) head(step, logits);
}

void CpuDecoder::head(const DecoderStep& step, float* logits) {
  const int32_t num_sparse = find_panels(step) ? step.num_sparse : 0;
  const int32_t num_whole = step.num_chosen - num_sparse;
  if (num_whole > 0) {
    head_->prepare_part(rows_, num_whole, step.num_chosen);
    norm_rows(norm_, step.chosen, rows_);
    head_->multiply(rows_, nullptr, false, logits);
  }
  if (num_sparse == 0) return;
  head_->prepare_part(sparse_, num_sparse, step.num_chosen);
  norm_rows(norm_, step.chosen + num_whole, sparse_);
  head_->multiply_panels(sparse_, panels_, logits + int64_t{num_whole} * shape_.vocab_size);
}

// Which panels the sparse tokens want; false where all of them with the others' cost no more.
bool CpuDecoder::find_panels(const DecoderStep& step) {
  if (step.num_sparse == 0) return false;
  const int32_t num_panels = (shape_.vocab_size + kPanelColumns - 1) / kPanelColumns;
  wanted_.assign(num_panels, 0);
  for (const int32_t id : step.outputs) wanted_[id / kPanelColumns] = 1;
  panels_.clear();
  for (int32_t panel = 0; panel < num_panels; ++panel) {
    if (wanted_[panel] != 0) panels_.push_back(panel);
  }
  const auto count = static_cast<int64_t>(panels_.size());
  const int32_t num_whole = step.num_chosen - step.num_sparse;
  if (num_whole == 0) return 2 * count <= num_panels;  // one by one they take longer
  // The others' panels have to be read anyway, and rows are multiplied by sixteen.
  const auto padded = [](int64_t rows) { return (rows + kRowTileHeight - 1) / kRowTileHeight * kRowTileHeight; };
  const int64_t saved = padded(step.num_chosen) - padded(num_whole);
  return count * (kPanelRows + padded(step.num_sparse)) < num_panels * saved;
}

void CpuDecoder::embed(const DecoderStep& step) {
  const int64_t size = shape_.hidden_size;
  for_rows(step.layout.num_tokens(), size, [&](int32_t row) {
    embedding_->unpack_row(step.token_ids[row], hidden_.data() + row * size);
  });
}

// rows[i] = norm of the i-th chosen token, or of token i where `chosen` is null.
void CpuDecoder::norm_rows(const std::vector<float>& weight, const int32_t* chosen,
                           InputRows& rows) {
  const int32_t size = shape_.hidden_size;
  for_rows(rows.num_rows(), size, [&](int32_t row) {
    thread_local std::vector<float> buffer;
    grow(buffer, size);
    const float* source = hidden_.data() + int64_t{chosen == nullptr ? row : chosen[row]} * size;
    float* place = rows.place(row);
    float* target = place != nullptr ? place : buffer.data();
    elementwise_kernels().rms_norm(source, weight.data(), shape_.rms_norm_eps, size, target);
    rows.set(row, target);
  });
}

// Norms and turns queries and keys, writes K/V to the cache, and rounds the queries if it is int8.
void CpuDecoder::take_heads(KvCache& cache, const DecoderStep& step, int32_t index) {
  const Layer& layer = layers_[index];
  const ElementwiseKernels& kernels = elementwise_kernels();
  const int32_t dim = shape_.head_dim, half = dim / 2;
  const bool int8 = cache.kind() == KvKind::kInt8;
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  for_rows(step.layout.num_tokens(), fused_size(), [&](int32_t token) {
    float* heads = fused_.data() + int64_t{token} * fused_size();
    const float* cos = cos_.data() + int64_t{step.positions[token]} * half;
    const float* sin = sin_.data() + int64_t{step.positions[token]} * half;
    for (int32_t h = 0; h < shape_.num_heads + shape_.num_kv_heads; ++h) {
      float* head = heads + int64_t{h} * dim;
      const auto& norm = h < shape_.num_heads ? layer.query_norm : layer.key_norm;
      if (!norm.empty()) kernels.rms_norm(head, norm.data(), shape_.rms_norm_eps, dim, head);
      kernels.rotate(head, cos, sin, half);
      // Orthogonal, so that scores stay as they are; a key's few large numbers are spread over the
      // head, and rounding with one scale a key loses less.
      if (int8) kernels.hadamard(head, dim);
    }
    const float* keys = heads + query_size();
    cache.write(index, step.slot_mapping[token], keys, keys + kv_size());
    if (!int8) return;
    for (int32_t h = 0; h < shape_.num_heads; ++h) {
      queries_.set(int64_t{token} * shape_.num_heads + h, heads + int64_t{h} * dim, dim, scale);
    }
  });
}

void CpuDecoder::attend(const KvCache& cache, const DecoderStep& step, int32_t layer) {
  if (cache.kind() == KvKind::kInt8) {
    quantized_attention(
        {queries_, cache, layer, step.layout, shape_.num_heads, attended_.data()}, *schedule_);
    return;
  }
  paged_attention({fused_.data(), fused_size(), cache.float_keys(layer),
                   cache.float_values(layer), attended_.data(), step.layout, cache.num_blocks(),
                   shape_.num_heads, shape_.num_kv_heads, shape_.head_dim, cache.block_size(),
                   1.0f / std::sqrt(static_cast<float>(shape_.head_dim))});
}

void CpuDecoder::feed_forward(const Layer& layer, int32_t num_tokens) {
  const Linear &gate_up = layer.gate_up, &down = layer.down;
  gate_up.weight->prepare(rows_, num_tokens);
  norm_rows(layer.feed_forward_norm, nullptr, rows_);
  down.weight->prepare(gated_, num_tokens);
  if (gate_up.weight->multiply_gated(rows_, gate_up.bias_or_null(), gated_)) {
    return down.weight->multiply(gated_, down.bias_or_null(), true, hidden_.data());
  }
  grow(gate_up_, int64_t{num_tokens} * 2 * shape_.inner_size);
  gate_up.weight->multiply(rows_, gate_up.bias_or_null(), false, gate_up_.data());
  const int32_t size = shape_.inner_size;
  for_rows(num_tokens, 2 * size, [&](int32_t row) {
    thread_local std::vector<float> buffer;
    grow(buffer, size);
    const float* gate = gate_up_.data() + int64_t{row} * 2 * size;
    float* place = gated_.place(row);
    float* target = place != nullptr ? place : buffer.data();
    elementwise_kernels().silu_mul(gate, gate + size, size, target);
    gated_.set(row, target);
  });
  down.weight->multiply(gated_, down.bias_or_null(), true, hidden_.data());
}

}  // namespace pagemill
