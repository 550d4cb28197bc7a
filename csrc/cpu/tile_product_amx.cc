// Tiles of bfloat16, chosen at run time (cpu/amx.h).
#include "cpu/tile_product.h"

#if defined(__x86_64__)

#include "cpu/avx512_math.h"

#include "cpu/aligned.h"
#include "cpu/amx.h"
#include "cpu/tile_product_avx512.h"

namespace pagemill {
namespace {

// Two panels at a time, in sections of their depth that stay in the first-level cache while the rows
// pass by. Sums wait between two sections in the second-level one.
constexpr int32_t kSectionTiles = 9;
constexpr int32_t kSumElements = kRowTileHeight * kWideLanes;
constexpr int64_t kStride = kTileBytes;

// Sums are in tiles 0 and 1, rows in 2, both panels in 3. No more: measured on data in the nearest
// cache, a core at times does such loops at its full rate whatever their registers, and at other
// times at half of it with these four, at a quarter with all eight. As if registers were short then
// for renaming, perhaps because another thread of the core uses tiles too.
//
// The vectors' work of the block before, `finish(line)` for its 16 lines, is spread between the
// products, which leave the vectors' units idle.
template <typename FinishLine>
PAGEMILL_AVX512_INLINE void multiply_tiles(const uint16_t* rows, const uint16_t* first,
                                           const uint16_t* second, int32_t tiles,
                                           const FinishLine& finish) {
  const int32_t step = (kRowTileHeight + tiles - 1) / tiles;
  int32_t line = 0;
  for (int32_t tile = 0; tile < tiles; ++tile) {
    tile_load<2>(rows, kStride);
    tile_load<3>(first, kStride);
    tile_product_bf16<0, 2, 3>();
    tile_load<3>(second, kStride);
    tile_product_bf16<1, 2, 3>();
    rows += kRowTileElements;
    first += kRowTileElements;
    second += kRowTileElements;
    for (const int32_t end = line + step; line < end; ++line) finish(line);
  }
}

// What two panels' sums of a block of rows become, a line `j` of them at a time: one after the other
// in `out`.
class PlainFinish {
 public:
  static constexpr int32_t kStep = 2;
  static int32_t second(const TileProduct&, const TileTask& task, int32_t panel) {
    return std::min(panel + 1, task.last_panel - 1);
  }

  PAGEMILL_AVX512_INLINE PlainFinish(const TileProduct& product, int32_t first, int32_t second)
      : epilogues_{{product, first}, {product, second}}, count_(second > first ? 2 : 1) {}

  PAGEMILL_AVX512_INLINE void prefetch(int32_t row) const {
    for (int i = 0; i < count_; ++i) epilogues_[i].prefetch(row);
  }
  PAGEMILL_AVX512_INLINE void line(int32_t row, int32_t j, const float* sums) const {
    epilogues_[0].store(row + j, _mm512_load_ps(sums + j * kWideLanes));
    if (count_ == 2) {
      epilogues_[1].store(row + j, _mm512_load_ps(sums + kSumElements + j * kWideLanes));
    }
  }

 private:
  TileEpilogue epilogues_[2];
  int count_;
};

// Gates and what they let through become rows of the next product.
class GatedFinish {
 public:
  static constexpr int32_t kStep = 1;
  static int32_t second(const TileProduct& product, const TileTask&, int32_t panel) {
    return panel + product.outputs / 2 / kWideLanes;
  }

  PAGEMILL_AVX512_INLINE GatedFinish(const TileProduct& product, int32_t first, int32_t second)
      : gate_(product, first),
        up_(product, second),
        out_(product.gated + first / 2 * kRowTileElements + first % 2 * kWideLanes),
        depth_(product.outputs / 2) {}

  PAGEMILL_AVX512_INLINE void prefetch(int32_t) const {}
  PAGEMILL_AVX512_INLINE void line(int32_t row, int32_t j, const float* sums) const {
    // Rows of whole tiles come before.
    uint16_t* target = out_ + int64_t{row} * depth_ + j * kRowTileDepth;
    const __m512 gate = gate_.scaled(_mm512_load_ps(sums + j * kWideLanes));
    const __m512 up = up_.scaled(_mm512_load_ps(sums + kSumElements + j * kWideLanes));
    const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_mul_ps(silu(gate), up));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(target), (__m256i)rounded);
  }

 private:
  TileEpilogue gate_, up_;
  uint16_t* out_;
  int32_t depth_;
};

// A part of a panel in bfloat16: where it stands, or widened to `target`.
PAGEMILL_AVX512_INLINE const uint16_t* section_of(const TileProduct& product, int32_t panel,
                                                  int32_t first, int32_t last, uint16_t* target) {
  if (product.int8 == nullptr) {
    return product.bfloat16 + panel * product.panel_elements() +
           int64_t{first} * kRowTileElements;
  }
  widen_tiles(product, panel, first, last, target);
  return target;
}

template <typename Finish>
PAGEMILL_AVX512 void multiply(const TileProduct& product, const TileTask& task) {
  thread_local AlignedVector<uint16_t> wide;
  thread_local AlignedVector<float> waiting;
  const int32_t depth_tiles = product.depth_tiles();
  const int32_t blocks = (task.last_row - task.first_row + kRowTileHeight - 1) / kRowTileHeight;
  const int32_t sections = (depth_tiles + kSectionTiles - 1) / kSectionTiles;
  const size_t waiting_size = sections > 1 ? static_cast<size_t>(blocks) * 2 * kSumElements : 0;
  if (waiting.size() < waiting_size) waiting.resize(waiting_size);
  if (product.int8 != nullptr) wide.resize(2 * kSectionTiles * kRowTileElements);
  alignas(64) float buffers[2][2 * kSumElements];
  const TileScope scope(TileShapes::full());
  for (int32_t panel = task.first_panel; panel < task.last_panel; panel += Finish::kStep) {
    const int32_t other = Finish::second(product, task, panel);
    const Finish finish(product, panel, other);
    int32_t undone = -1;  // the first row of a block whose sums are in a buffer
    for (int32_t section = 0, first = 0; section < sections; ++section) {
      const int32_t tiles = (depth_tiles - first + sections - section - 1) / (sections - section);
      uint16_t* target = wide.data();
      const uint16_t* left = section_of(product, panel, first, first + tiles, target);
      if (product.int8 != nullptr) target += kSectionTiles * kRowTileElements;
      const uint16_t* right =
          other == panel ? left : section_of(product, other, first, first + tiles, target);
      const bool last = section + 1 == sections;
      for (int32_t block = 0; block < blocks; ++block) {
        float* kept = waiting.data() + int64_t{block} * 2 * kSumElements;
        if (section == 0) {
          tile_zero<0>();
          tile_zero<1>();
        } else {
          tile_load<0>(kept, kStride);
          tile_load<1>(kept + kSumElements, kStride);
        }
        const int32_t row = task.first_row + block * kRowTileHeight;
        const int64_t place = int64_t{row / kRowTileHeight} * depth_tiles + first;
        const uint16_t* rows = product.rows + place * kRowTileElements;
        if (!last) {
          multiply_tiles(rows, left, right, tiles, [](int32_t) PAGEMILL_AVX512 {});
        } else {
          finish.prefetch(row);
          const float* before = buffers[(block + 1) % 2];
          // A block before another is whole.
          multiply_tiles(rows, left, right, tiles, [&](int32_t line) PAGEMILL_AVX512 {
            if (undone >= 0 && line < kRowTileHeight) finish.line(undone, line, before);
          });
          undone = row;
        }
        float* sums_out = last ? buffers[block % 2] : kept;
        tile_store<0>(sums_out, kStride);
        tile_store<1>(sums_out + kSumElements, kStride);
      }
      first += tiles;
    }
    for (int32_t line = 0; line < std::min(kRowTileHeight, task.last_row - undone); ++line) {
      finish.line(undone, line, buffers[(blocks - 1) % 2]);
    }
  }
}

void multiply_or_gate(const TileProduct& product, const TileTask& task) {
  if (product.gated == nullptr) {
    multiply<PlainFinish>(product, task);
  } else {
    multiply<GatedFinish>(product, task);
  }
}

}  // namespace

TileProductKernel amx_tile_product() { return multiply_or_gate; }

}  // namespace pagemill

#else

namespace pagemill {

TileProductKernel amx_tile_product() { return nullptr; }

}  // namespace pagemill

#endif
