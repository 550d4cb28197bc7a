// The parameters of a decoder: names, shapes, packing.
#include <stdexcept>

#include "cpu/decoder.h"

namespace pagemill {
namespace {

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  throw std::invalid_argument("parameter " + name + " " + why);
}

}  // namespace

CpuDecoder::CpuDecoder(const DecoderShape& shape, WeightKind kind)
    : shape_(shape),
      kind_(kind),
      careful_kind_(kind == WeightKind::kInt8 ? WeightKind::kBfloat16 : kind) {
  if (shape.num_layers < 1 || shape.hidden_size < 1 || shape.inner_size < 1 ||
      shape.vocab_size < 1 || shape.num_kv_heads < 1 || shape.num_heads % shape.num_kv_heads != 0 ||
      shape.num_heads < 1 || shape.head_dim < 2 || shape.head_dim % 2 != 0 ||
      shape.head_dim > 512) {
    throw std::invalid_argument("a decoder of these sizes can't be");
  }
  layers_.resize(shape.num_layers);
}

void CpuDecoder::set(const std::string& name, const float* values, int32_t rows,
                     int32_t columns) {
  if (values == nullptr) refuse(name, "is a null pointer");
  if (name.starts_with("layers.")) return set_layer(name, values, rows, columns);
  if (name == "norm.weight") {
    const int64_t count = int64_t{rows} * columns;
    if (count != shape_.hidden_size) refuse(name, "has another shape");
    norm_.assign(values, values + count);
    return;
  }
  if (name != "embedding.weight" && name != "head.weight") refuse(name, "is unknown");
  if (rows != shape_.vocab_size || columns != shape_.hidden_size) {
    refuse(name, "has another shape");
  }
  auto& target = name == "head.weight" ? head_ : embedding_;
  target = std::make_shared<const PackedMatrix>(values, rows, columns, careful_kind_);
}

void CpuDecoder::tie_head() {
  if (embedding_ == nullptr) throw std::invalid_argument("there is no embedding yet");
  head_ = embedding_;
}

void CpuDecoder::set_layer(const std::string& name, const float* values, int32_t rows,
                           int32_t columns) {
  const size_t start = std::string("layers.").size(), dot = name.find('.', start);
  if (dot == std::string::npos || dot == start || dot - start > 6 ||
      name.find_first_not_of("0123456789", start) != dot) {
    refuse(name, "is unknown");
  }
  const int32_t index = std::stoi(name.substr(start, dot - start));
  if (index >= shape_.num_layers) refuse(name, "is of a layer that isn't there");
  Layer& layer = layers_[index];
  const std::string part = name.substr(dot + 1);
  const auto vector = [&](std::vector<float>& target, int32_t size) {
    if (int64_t{rows} * columns != size) refuse(name, "has another shape");
    target.assign(values, values + size);
  };
  const int32_t hidden = shape_.hidden_size, inner = shape_.inner_size;
  if (part == "attention_norm.weight") return vector(layer.attention_norm, hidden);
  if (part == "feed_forward_norm.weight") return vector(layer.feed_forward_norm, hidden);
  if (part == "attention.query_norm.weight") return vector(layer.query_norm, shape_.head_dim);
  if (part == "attention.key_norm.weight") return vector(layer.key_norm, shape_.head_dim);
  const size_t last = part.rfind('.');
  const std::string linear = part.substr(0, last);
  const std::string kind = last == std::string::npos ? "" : part.substr(last + 1);
  const auto take = [&](Linear& target, int32_t outputs, int32_t inputs, WeightKind weight_kind) {
    if (kind == "bias") return vector(target.bias, outputs);
    if (kind != "weight") refuse(name, "is unknown");
    if (rows != outputs || columns != inputs) refuse(name, "has another shape");
    target.weight = std::make_unique<PackedMatrix>(values, outputs, inputs, weight_kind);
  };
  if (linear == "attention.qkv") return take(layer.qkv, fused_size(), hidden, careful_kind_);
  if (linear == "attention.output") return take(layer.output, hidden, query_size(), kind_);
  if (linear == "feed_forward.gate_up") return take(layer.gate_up, 2 * inner, hidden, kind_);
  if (linear == "feed_forward.down") return take(layer.down, hidden, inner, careful_kind_);
  refuse(name, "is unknown");
}

void CpuDecoder::set_rotary(const float* cos, const float* sin, int32_t num_positions) {
  if (cos == nullptr || sin == nullptr || num_positions < 1) {
    throw std::invalid_argument("a rotary table has at least one position");
  }
  const int64_t count = int64_t{num_positions} * (shape_.head_dim / 2);
  cos_.assign(cos, cos + count);
  sin_.assign(sin, sin + count);
}

std::vector<std::string> CpuDecoder::missing() const {
  std::vector<std::string> names;
  const auto want = [&](bool there, const std::string& name) {
    if (!there) names.push_back(name);
  };
  want(embedding_ != nullptr, "embedding.weight");
  want(head_ != nullptr, "head.weight");
  want(!norm_.empty(), "norm.weight");
  want(!cos_.empty(), "the rotary table");
  for (size_t i = 0; i < layers_.size(); ++i) {
    const std::string prefix = "layers." + std::to_string(i) + ".";
    const Layer& layer = layers_[i];
    want(!layer.attention_norm.empty(), prefix + "attention_norm.weight");
    want(!layer.feed_forward_norm.empty(), prefix + "feed_forward_norm.weight");
    want(layer.qkv.weight != nullptr, prefix + "attention.qkv.weight");
    want(layer.output.weight != nullptr, prefix + "attention.output.weight");
    want(layer.gate_up.weight != nullptr, prefix + "feed_forward.gate_up.weight");
    want(layer.down.weight != nullptr, prefix + "feed_forward.down.weight");
  }
  return names;
}

int64_t CpuDecoder::num_bytes() const {
  int64_t bytes = embedding_ == nullptr ? 0 : embedding_->num_bytes();
  if (head_ != nullptr && head_ != embedding_) bytes += head_->num_bytes();
  for (const Layer& layer : layers_) {
    for (const Linear* linear : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down}) {
      if (linear->weight != nullptr) bytes += linear->weight->num_bytes();
    }
  }
  return bytes;
}

}  // namespace pagemill
