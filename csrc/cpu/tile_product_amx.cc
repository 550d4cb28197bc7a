// Tiles of bfloat16, chosen at run time (cpu/amx.h).
#include "cpu/tile_product.h"

#if defined(__x86_64__)

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

// Sums are in tiles 0 and 1, rows in 2, both panels in 3. No more: of its physical registers a core
// gives each of its threads some, and where the neighbour uses tiles too, none is left to rename
// the eight of a larger block. Rows and panels then wait for one another, and the product takes four
// times as long; with four registers twice, and alone on the core all blocks run at the full rate.
inline void multiply_tiles(const uint16_t* rows, const uint16_t* first, const uint16_t* second,
                           int32_t tiles) {
  for (int32_t tile = 0; tile < tiles; ++tile) {
    tile_load<2>(rows, kStride);
    tile_load<3>(first, kStride);
    tile_product_bf16<0, 2, 3>();
    tile_load<3>(second, kStride);
    tile_product_bf16<1, 2, 3>();
    rows += kRowTileElements;
    first += kRowTileElements;
    second += kRowTileElements;
  }
}

PAGEMILL_AVX512 void multiply(const TileProduct& product, const TileTask& task) {
  thread_local AlignedVector<uint16_t> wide;
  thread_local AlignedVector<float> waiting;
  const int32_t depth_tiles = product.depth_tiles();
  const int32_t blocks = (task.last_row - task.first_row + kRowTileHeight - 1) / kRowTileHeight;
  const int32_t sections = (depth_tiles + kSectionTiles - 1) / kSectionTiles;
  if (sections > 1 && waiting.size() < static_cast<size_t>(blocks) * 2 * kSumElements) {
    waiting.resize(static_cast<size_t>(blocks) * 2 * kSumElements);
  }
  if (product.int8 != nullptr) wide.resize(2 * kSectionTiles * kRowTileElements);
  alignas(64) float sums[2][kSumElements];
  const TileScope scope(TileShapes::full());
  for (int32_t panel = task.first_panel; panel < task.last_panel; panel += 2) {
    const bool two = panel + 1 < task.last_panel;
    const TileEpilogue epilogues[2] = {{product, panel}, {product, panel + two}};
    for (int32_t section = 0, first = 0; section < sections; ++section) {
      const int32_t tiles = (depth_tiles - first + sections - section - 1) / (sections - section);
      const uint16_t* weights[2];
      for (int i = 0; i < 2; ++i) {
        if (product.int8 != nullptr) {
          uint16_t* target = wide.data() + i * kSectionTiles * kRowTileElements;
          if (i == 0 || two) widen_tiles(product, panel + i, first, first + tiles, target);
          weights[i] = i == 0 || two ? target : weights[0];
        } else {
          weights[i] = product.bfloat16 + (panel + (i & two)) * product.panel_elements() +
                       int64_t{first} * kRowTileElements;
        }
      }
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
        if (section + 1 == sections) {
          for (int i = 0; i <= two; ++i) epilogues[i].prefetch(row);
        }
        const int64_t place = int64_t{row / kRowTileHeight} * depth_tiles + first;
        multiply_tiles(product.rows + place * kRowTileElements, weights[0], weights[1], tiles);
        if (section + 1 < sections) {
          tile_store<0>(kept, kStride);
          tile_store<1>(kept + kSumElements, kStride);
          continue;
        }
        tile_store<0>(sums[0], kStride);
        tile_store<1>(sums[1], kStride);
        const int32_t count = std::min(kRowTileHeight, task.last_row - row);
        for (int i = 0; i <= two; ++i) {
          for (int32_t j = 0; j < count; ++j) {
            epilogues[i].store(row + j, _mm512_load_ps(sums[i] + j * kWideLanes));
          }
        }
      }
      first += tiles;
    }
  }
}

}  // namespace

TileProductKernel amx_tile_product() { return multiply; }

}  // namespace pagemill

#else

namespace pagemill {

TileProductKernel amx_tile_product() { return nullptr; }

}  // namespace pagemill

#endif
