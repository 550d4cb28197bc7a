// The paged KV cache of all layers.
#pragma once

#include <cstdint>

namespace pagemill {

enum class KvKind { kFloat32, kInt8 };

// K and V in blocks of `block_size` tokens. Memory is taken from the system as blocks are first
// written. Reads and writes aren't synchronised: a step's phases follow each other.
//
// kFloat32: K and V each [layer][block][token][kv head][head_dim].
//
// kInt8: rounded to 8 bits, with a scale for each token and head. Each head of a block is a run of
// units of 16 tokens, in the order in which the matrix kernels read them:
//   K [layer][block][kv head][unit][head_dim / 2][16 tokens][2]
//   V [layer][block][kv head][unit][8 pairs of tokens][head_dim][2]
//   scales [layer][block][kv head][K, V][token]
class KvCache {
 public:
  static constexpr int32_t kUnit = 16;

  // Throws std::invalid_argument for sizes that can't be (see serves), std::bad_alloc without
  // address space.
  KvCache(int32_t num_layers, int32_t num_blocks, int32_t block_size, int32_t num_kv_heads,
          int32_t head_dim, KvKind kind);
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  // kInt8 wants block_size and head_dim to be multiples of 16.
  static bool serves(KvKind kind, int32_t block_size, int32_t head_dim);
  // Bytes of one block over all layers.
  static int64_t bytes_per_block(int32_t num_layers, int32_t block_size, int32_t num_kv_heads,
                                 int32_t head_dim, KvKind kind);

  KvKind kind() const { return kind_; }
  int32_t num_layers() const { return num_layers_; }
  int32_t num_blocks() const { return num_blocks_; }
  int32_t block_size() const { return block_size_; }
  int32_t num_kv_heads() const { return num_kv_heads_; }
  int32_t head_dim() const { return head_dim_; }

  // Writes a token's K and V, each [kv heads][head_dim], to place `slot` = block * block_size +
  // offset of a layer.
  void write(int32_t layer, int32_t slot, const float* key, const float* value);

  // kFloat32: the layer's part.
  const float* float_keys(int32_t layer) const;
  const float* float_values(int32_t layer) const;

  // kInt8: one head of one block; scales are those of K, then those of V.
  struct Head {
    const int8_t* keys;
    const int8_t* values;
    const float* scales;
  };
  Head head(int32_t layer, int32_t block, int32_t kv_head) const;

  // Copies blocks in all layers. Throws std::invalid_argument for a block that isn't there.
  void copy_blocks(const int32_t* sources, const int32_t* targets, int32_t count);

 private:
  int64_t block_elements() const { return int64_t{block_size_} * num_kv_heads_ * head_dim_; }
  int64_t element_bytes() const { return kind_ == KvKind::kFloat32 ? 4 : 1; }
  int64_t block_index(int32_t layer, int32_t block) const {
    return int64_t{layer} * num_blocks_ + block;
  }

  int32_t num_layers_, num_blocks_, block_size_, num_kv_heads_, head_dim_;
  KvKind kind_;
  int64_t num_bytes_;
  // One mapping: keys, values, scales.
  uint8_t* memory_;
  uint8_t *keys_, *values_;
  float* scales_;
};

}  // namespace pagemill
