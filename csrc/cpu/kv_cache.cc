#include "cpu/kv_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <new>
#include <stdexcept>
#include <vector>

namespace pagemill {
namespace {

constexpr float kLimit = 127.0f;

// Rounds `count` numbers, a multiple of 16, and returns their scale. In lanes, so that any compiler
// makes vectors of it.
float round_to_int8(const float* values, int32_t count, int8_t* out) {
  constexpr int32_t kLanes = 16;
  float lanes[kLanes] = {};
  for (int32_t i = 0; i < count; i += kLanes) {
    for (int32_t l = 0; l < kLanes; ++l) {
      const float size = std::fabs(values[i + l]);
      lanes[l] = size > lanes[l] ? size : lanes[l];
    }
  }
  const float largest = *std::max_element(lanes, lanes + kLanes);
  const float inverse = largest > 0.0f ? kLimit / largest : 0.0f;
  for (int32_t i = 0; i < count; ++i) {
    // Adding 1.5 * 2^23 rounds to nearest and leaves the whole number in the low bits.
    const float shifted = values[i] * inverse + 12582912.0f;
    out[i] = static_cast<int8_t>(std::bit_cast<int32_t>(shifted) & 0xFF);
  }
  return largest / kLimit;
}

}  // namespace

bool KvCache::serves(KvKind kind, int32_t block_size, int32_t head_dim) {
  return kind == KvKind::kFloat32 || (block_size % kUnit == 0 && head_dim % kUnit == 0);
}

int64_t KvCache::bytes_per_block(int32_t num_layers, int32_t block_size, int32_t num_kv_heads,
                                 int32_t head_dim, KvKind kind) {
  const int64_t heads = int64_t{num_layers} * block_size * num_kv_heads;
  if (kind == KvKind::kFloat32) return heads * head_dim * 2 * 4;
  return heads * (head_dim * 2 + 2 * 4);
}

KvCache::KvCache(int32_t num_layers, int32_t num_blocks, int32_t block_size,
                 int32_t num_kv_heads, int32_t head_dim, KvKind kind)
    : num_layers_(num_layers),
      num_blocks_(num_blocks),
      block_size_(block_size),
      num_kv_heads_(num_kv_heads),
      head_dim_(head_dim),
      kind_(kind) {
  if (num_layers < 1 || num_blocks < 1 || block_size < 1 || num_kv_heads < 1 || head_dim < 1) {
    throw std::invalid_argument("a KV cache's sizes are at least 1");
  }
  if (int64_t{num_blocks} * block_size > INT32_MAX) {
    throw std::invalid_argument("a KV cache has less than 2^31 places");
  }
  if (!serves(kind, block_size, head_dim)) {
    throw std::invalid_argument(
        "an int8 KV cache wants block_size and head_dim to be multiples of 16");
  }
  num_bytes_ = bytes_per_block(num_layers, block_size, num_kv_heads, head_dim, kind) * num_blocks;
  void* memory = mmap(nullptr, static_cast<size_t>(num_bytes_), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = keys_ = static_cast<uint8_t*>(memory);
  const int64_t part = int64_t{num_layers} * num_blocks * block_elements() * element_bytes();
  values_ = keys_ + part;
  scales_ = reinterpret_cast<float*>(values_ + part);
}

KvCache::~KvCache() { munmap(memory_, static_cast<size_t>(num_bytes_)); }

const float* KvCache::float_keys(int32_t layer) const {
  return reinterpret_cast<const float*>(keys_) + block_index(layer, 0) * block_elements();
}

const float* KvCache::float_values(int32_t layer) const {
  return reinterpret_cast<const float*>(values_) + block_index(layer, 0) * block_elements();
}

KvCache::Head KvCache::head(int32_t layer, int32_t block, int32_t kv_head) const {
  const int64_t index = block_index(layer, block) * num_kv_heads_ + kv_head;
  const int64_t place = index * block_size_ * head_dim_;
  return {reinterpret_cast<const int8_t*>(keys_) + place,
          reinterpret_cast<const int8_t*>(values_) + place, scales_ + index * 2 * block_size_};
}

void KvCache::write(int32_t layer, int32_t slot, const float* key, const float* value) {
  const int32_t block = slot / block_size_, token = slot % block_size_;
  if (kind_ == KvKind::kFloat32) {
    const int64_t width = int64_t{num_kv_heads_} * head_dim_;
    const int64_t place = block_index(layer, 0) * block_elements() + slot * width;
    std::copy_n(key, width, reinterpret_cast<float*>(keys_) + place);
    std::copy_n(value, width, reinterpret_cast<float*>(values_) + place);
    return;
  }
  const int32_t unit = token / kUnit * kUnit * head_dim_, lane = token % kUnit;
  thread_local std::vector<int8_t> rounded;
  rounded.resize(static_cast<size_t>(head_dim_));
  for (int32_t h = 0; h < num_kv_heads_; ++h, key += head_dim_, value += head_dim_) {
    const Head head = this->head(layer, block, h);
    auto* scales = const_cast<float*>(head.scales);
    scales[token] = round_to_int8(key, head_dim_, rounded.data());
    int8_t* keys = const_cast<int8_t*>(head.keys) + unit + 2 * lane;
    for (int32_t d = 0; d < head_dim_; d += 2) std::copy_n(&rounded[d], 2, keys + d * kUnit);
    scales[block_size_ + token] = round_to_int8(value, head_dim_, rounded.data());
    int8_t* values = const_cast<int8_t*>(head.values) + unit + lane / 2 * 2 * head_dim_ + lane % 2;
    for (int32_t d = 0; d < head_dim_; ++d) values[2 * d] = rounded[d];
  }
}

void KvCache::copy_blocks(const int32_t* sources, const int32_t* targets, int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    for (const int32_t block : {sources[i], targets[i]}) {
      if (block < 0 || block >= num_blocks_) throw std::invalid_argument("no such KV block");
    }
  }
  const int64_t bytes = block_elements() * element_bytes();
  const int64_t num_scales = kind_ == KvKind::kInt8 ? int64_t{2} * block_size_ * num_kv_heads_ : 0;
  for (int32_t layer = 0; layer < num_layers_; ++layer) {
    for (int32_t i = 0; i < count; ++i) {
      const int64_t from = block_index(layer, sources[i]), to = block_index(layer, targets[i]);
      if (from == to) continue;
      std::memcpy(keys_ + to * bytes, keys_ + from * bytes, static_cast<size_t>(bytes));
      std::memcpy(values_ + to * bytes, values_ + from * bytes, static_cast<size_t>(bytes));
      if (num_scales > 0) {
        std::copy_n(scales_ + from * num_scales, num_scales, scales_ + to * num_scales);
      }
    }
  }
}

}  // namespace pagemill
