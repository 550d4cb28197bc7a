// Tiles: eight registers of up to 16 rows of 64 bytes, and the products of two of them.
//
// Written in assembly: the compilers' intrinsics don't say that a load reads memory, so that what a
// kernel has just written to its buffer might be stored after it. Only for sources that are built
// for x86-64; a kernel may run where instruction_set() is kAmx.
#pragma once

#include <cstdint>

namespace pagemill {

constexpr int32_t kTileHeight = 16, kTileBytes = 64;

// Rows and bytes a row of each tile.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  constexpr void set(int tile, int num_rows, int bytes) {
    rows[tile] = static_cast<uint8_t>(num_rows);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
  // All eight of full size.
  static constexpr TileShapes full() {
    TileShapes shapes;
    for (int tile = 0; tile < 8; ++tile) shapes.set(tile, kTileHeight, kTileBytes);
    return shapes;
  }
};

// This thread's tiles have their shapes within the scope, and hold nothing after it: a thread that
// is switched then needn't keep 8 KiB of them. Costs some tens of cycles, so once a task.
class TileScope {
 public:
  explicit TileScope(const TileShapes& shapes) {
    __asm__ volatile("ldtilecfg %0" : : "m"(shapes) : "memory");
  }
  ~TileScope() { __asm__ volatile("tilerelease" : : : "memory"); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

template <int kTile>
inline void tile_zero() {
  __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
}

// Rows are `stride` bytes apart.
template <int kTile>
inline void tile_load(const void* rows, int64_t stride) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(rows), "r"(stride), "i"(kTile)
                   : "memory");
}

template <int kTile>
inline void tile_store(void* rows, int64_t stride) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(rows), "r"(stride), "i"(kTile)
                   : "memory");
}

// kSum[i][j] += sum over p of kRows[i][2p] * kPairs[p][j][0] + kRows[i][2p + 1] * kPairs[p][j][1],
// in bfloat16 with sums in float32. Numbers too small to be normal count as zero.
template <int kSum, int kRows, int kPairs>
inline void tile_product_bf16() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kRows), "i"(kPairs));
}

// kSum[i][j] += sum over q and e < 4 of kRows[i][4q + e] * kFours[q][j][e]: signed bytes, exact in
// 32 bits.
template <int kSum, int kRows, int kFours>
inline void tile_product_int8() {
  __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kRows), "i"(kFours));
}

}  // namespace pagemill
