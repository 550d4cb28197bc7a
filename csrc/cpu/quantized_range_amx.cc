// AMX with AVX-512, chosen at run time (cpu/avx512.h).
#include "cpu/quantized_range.h"

#if defined(__x86_64__)

#include "cpu/avx512_math.h"

#include <algorithm>
#include <limits>

#include "cpu/aligned.h"
#include "cpu/amx.h"

namespace pagemill {
namespace {

constexpr int32_t kUnit = KvCache::kUnit;
// Positions of K and V that are worked on at once; they stay in the nearest caches while blocks of
// queries go over them.
constexpr int32_t kTilePositions = 256;
constexpr int32_t kBlockRows = 2 * kTileHeight;  // queries: two tiles
constexpr int32_t kTileNumbers = kTileHeight * kTileBytes / 2;  // of bfloat16
constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;
constexpr float kNone = -std::numeric_limits<float>::infinity();
// Weights are powers of two, 2^(score - maximum). As long as a new tile's stay below this, the
// maximum may stay as it is: they are floats, so nothing is lost, and results needn't be scaled.
constexpr float kLargestSum = 0x1p40f;

// Within its scope numbers too small to be normal count as zero on this thread, as they do in tiles.
class FlushScope {
 public:
  FlushScope() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
  ~FlushScope() { _mm_setcsr(before_); }
  FlushScope(const FlushScope&) = delete;
  FlushScope& operator=(const FlushScope&) = delete;

 private:
  uint32_t before_;
};

// 32 whole numbers of 8 bits as bfloat16, exactly.
PAGEMILL_AVX512_INLINE __m512i bfloat16_of(const int8_t* source) {
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
  const __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(bytes)));
  const __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(bytes, 1)));
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

// 2^x, relative error below 1e-4; infinity where it is too large. x isn't NaN.
PAGEMILL_AVX512_INLINE __m512 rough_exp2(__m512 x) {
  const __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF);  // 0 to 1
  __m512 p = _mm512_set1_ps(0.0780245215f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.226067156f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.695833564f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.999925196f));
  return _mm512_scalef_ps(p, x);
}

// A thread's memory, kept from task to task.
struct Memory {
  // [block][row][head_dim, padded to whole tiles]
  AlignedVector<uint16_t> queries;
  // Tiles of 16 pairs: K [unit][pairs of head_dim][16 positions][2], V [32 positions][16 of
  // head_dim][16 pairs of positions][16][2].
  AlignedVector<uint16_t> keys, values;
  // Sums of values, tiles of 16 columns: [block][16 of head_dim][row][16].
  AlignedVector<float> results;
  AlignedVector<float> sums;  // of weights, [query][16]: any lane's part
  AlignedVector<int32_t> visible;
  alignas(64) float key_scales[kTilePositions];
  alignas(64) float value_scales[kTilePositions];
  // Of a block, tiles too: [16 positions][row][16] and [32 positions][row][32].
  alignas(64) float scores[kBlockRows * kTilePositions];
  alignas(64) uint16_t weights[kBlockRows * kTilePositions];
};
constexpr int32_t kScoreStep = kBlockRows * kUnit;  // from a unit's scores to the next one's
constexpr int32_t kWeightStep = kBlockRows * 32;

// One task.
class TileRange {
 public:
  TileRange(const QuantizedRange& range, Memory& memory)
      : range_(range),
        memory_(memory),
        head_dim_(range.cache.head_dim()),
        depth_tiles_((head_dim_ + 31) / 32),
        value_tiles_(head_dim_ / 16),
        padded_rows_((range.num_queries + kBlockRows - 1) / kBlockRows * kBlockRows) {}

  PAGEMILL_AVX512 void run() {
    const TileScope tiles(TileShapes::full());
    const FlushScope flush;
    grow(memory_.queries, int64_t{padded_rows_} * depth_tiles_ * 32);
    grow(memory_.keys, int64_t{kTilePositions} * depth_tiles_ * 32);
    grow(memory_.values, int64_t{kTilePositions} * head_dim_);
    grow(memory_.sums, int64_t{padded_rows_} * kWideLanes);
    grow(memory_.visible, padded_rows_);
    grow(memory_.results, int64_t{padded_rows_} * head_dim_);
    std::fill_n(memory_.results.data(), int64_t{padded_rows_} * head_dim_, 0.0f);
    std::fill_n(range_.maxima, range_.num_queries, kNone);
    std::fill_n(memory_.sums.data(), int64_t{padded_rows_} * kWideLanes, 0.0f);
    round_queries();
    for (start_ = range_.start; start_ < range_.end; start_ += kTilePositions) {
      count_ = std::min(kTilePositions, range_.end - start_);
      load_tile();
      for (int32_t first = 0; first < range_.num_queries; first += kBlockRows) attend(first);
    }
    for (int32_t i = 0; i < range_.num_queries; ++i) {
      range_.maxima[i] *= kLn2;
      range_.sums[i] = _mm512_reduce_add_ps(_mm512_load_ps(memory_.sums.data() + i * kWideLanes));
      for (int32_t c = 0; c < value_tiles_; ++c) {
        _mm512_storeu_ps(range_.results + int64_t{i} * head_dim_ + c * kWideLanes,
                         _mm512_load_ps(result_line(i, c)));
      }
    }
  }

 private:
  // Scores come out as powers of two.
  PAGEMILL_AVX512 void round_queries() {
    const int32_t width = depth_tiles_ * 32;
    for (int32_t i = 0; i < padded_rows_; ++i) {
      const bool there = i < range_.num_queries;
      const __m512 scale = _mm512_set1_ps(there ? range_.query_scales[i] * kLog2E : 0.0f);
      const int16_t* source = range_.queries + int64_t{i} * head_dim_;
      uint16_t* target = memory_.queries.data() + int64_t{i} * width;
      for (int32_t d = 0; d < width; d += kWideLanes) {
        __m512 numbers = _mm512_setzero_ps();
        if (there && d < head_dim_) {
          const __m256i whole = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source + d));
          numbers = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(whole)), scale);
        }
        _mm256_store_si256(reinterpret_cast<__m256i*>(target + d),
                           reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(numbers)));
      }
    }
  }

  PAGEMILL_AVX512 void load_tile() {
    const int64_t key_unit = int64_t{kUnit} * depth_tiles_ * 32;
    const int32_t pairs = head_dim_ / 2;
    for (int32_t first = 0; first < kTilePositions; first += kUnit) {
      // Behind the last position: V of an odd unit is half of a tile.
      if (first >= count_) {
        _mm512_store_ps(memory_.key_scales + first, _mm512_setzero_ps());
        _mm512_store_ps(memory_.value_scales + first, _mm512_setzero_ps());
        if (first - kUnit < count_ && first % 32 != 0) {
          for (int32_t p = 0; p < kUnit / 2; ++p) {
            for (int32_t c = 0; c < value_tiles_; ++c) {
              _mm512_store_si512(value_line(first, p, c), _mm512_setzero_si512());
            }
          }
        }
        continue;
      }
      const auto unit = range_.unit(start_ + first);
      uint16_t* keys = memory_.keys.data() + first / kUnit * key_unit;
      for (int32_t p = 0; p < pairs; ++p) {
        _mm512_store_si512(keys + p * 32, bfloat16_of(unit.keys + p * 32));
      }
      for (int32_t p = pairs; p < depth_tiles_ * 16; ++p) {
        _mm512_store_si512(keys + p * 32, _mm512_setzero_si512());
      }
      const int8_t* values = unit.values;
      for (int32_t p = 0; p < kUnit / 2; ++p) {
        for (int32_t c = 0; c < value_tiles_; ++c, values += 32) {
          _mm512_store_si512(value_line(first, p, c), bfloat16_of(values));
        }
      }
      _mm512_store_ps(memory_.key_scales + first, _mm512_loadu_ps(unit.key_scales));
      _mm512_store_ps(memory_.value_scales + first, _mm512_loadu_ps(unit.value_scales));
      range_.prefetch(start_ + first + kTilePositions);
    }
  }

  // Where pair `pair` of the unit at `first` stands in its tile of columns 16c to 16c + 16.
  uint16_t* value_line(int32_t first, int32_t pair, int32_t c) const {
    return memory_.values.data() + (int64_t{first / 32} * value_tiles_ + c) * kTileNumbers +
           (first % 32 / 2 + pair) * 32;
  }

  // Columns 16c to 16c + 16 of a query's result.
  float* result_line(int32_t query, int32_t c) const {
    return memory_.results.data() + int64_t{query / kBlockRows} * kBlockRows * head_dim_ +
           (int64_t{c} * kBlockRows + query % kBlockRows) * kWideLanes;
  }

  PAGEMILL_AVX512 void attend(int32_t first) {
    const int32_t num_rows = std::min(kBlockRows, range_.num_queries - first);
    int32_t most = 0;
    for (int32_t i = 0; i < num_rows; ++i) {
      memory_.visible.data()[i] =
          std::clamp(range_.last_positions[first + i] + 1 - start_, 0, count_);
      most = std::max(most, memory_.visible.data()[i]);
    }
    if (most == 0) return;
    const int32_t padded = (most + 31) / 32 * 32;
    const uint16_t* queries = memory_.queries.data() + int64_t{first} * depth_tiles_ * 32;
    const int32_t num_units = (most + kUnit - 1) / kUnit;
    if (depth_tiles_ == 2) {
      score_64(queries, num_units);
    } else {
      score(queries, num_units);
    }
    for (int32_t i = 0; i < num_rows; ++i) weigh(first + i, i, memory_.visible.data()[i], padded);
    int32_t c = 0;
    for (; c + 2 <= value_tiles_; c += 2) add_values<2>(c, padded / 32, result_line(first, c));
    if (c < value_tiles_) add_values<1>(c, padded / 32, result_line(first, c));
  }

  // Scores of a block's rows, for head_dim 33 to 64: all of its queries stay in tiles.
  void score_64(const uint16_t* queries, int32_t num_units) {
    constexpr int64_t kStride = 64 * 2;
    tile_load<4>(queries, kStride);
    tile_load<5>(queries + 32, kStride);
    tile_load<6>(queries + kTileHeight * 64, kStride);
    tile_load<7>(queries + kTileHeight * 64 + 32, kStride);
    const uint16_t* keys = memory_.keys.data();
    float* scores = memory_.scores;
    for (int32_t unit = 0; unit < num_units; ++unit) {
      tile_load<2>(keys, kTileBytes);
      tile_load<3>(keys + kTileNumbers, kTileBytes);
      tile_zero<0>();
      tile_zero<1>();
      tile_product_bf16<0, 4, 2>();
      tile_product_bf16<1, 6, 2>();
      tile_product_bf16<0, 5, 3>();
      tile_product_bf16<1, 7, 3>();
      tile_store<0>(scores, kTileBytes);
      tile_store<1>(scores + kTileHeight * kUnit, kTileBytes);
      keys += 2 * kTileNumbers;
      scores += kScoreStep;
    }
  }

  void score(const uint16_t* queries, int32_t num_units) {
    const int64_t width = int64_t{depth_tiles_} * 32;
    const uint16_t* keys = memory_.keys.data();
    float* scores = memory_.scores;
    for (int32_t unit = 0; unit < num_units; ++unit) {
      tile_zero<0>();
      tile_zero<1>();
      for (int32_t k = 0; k < depth_tiles_; ++k) {
        tile_load<2>(keys, kTileBytes);
        tile_load<4>(queries + k * 32, width * 2);
        tile_load<6>(queries + kTileHeight * width + k * 32, width * 2);
        tile_product_bf16<0, 4, 2>();
        tile_product_bf16<1, 6, 2>();
        keys += kTileNumbers;
      }
      tile_store<0>(scores, kTileBytes);
      tile_store<1>(scores + kTileHeight * kUnit, kTileBytes);
      scores += kScoreStep;
    }
  }

  // Turns row `i` of the scores into weights, each multiplied by its value's scale and rounded.
  PAGEMILL_AVX512 void weigh(int32_t query, int32_t i, int32_t visible, int32_t padded) {
    const float* scores = memory_.scores + i * kUnit;
    uint16_t* out = memory_.weights + i * 32;
    if (visible == 0) {
      for (int32_t j = 0; j < padded; j += 32, out += kWeightStep) {
        _mm512_store_si512(out, _mm512_setzero_si512());
      }
      return;
    }
    float& maximum = range_.maxima[query];
    if (maximum == kNone) maximum = highest(scores, visible);
    // With the size known, the loop is unrolled.
    __m512 sums = visible == kTilePositions
                      ? exponentiate(scores, maximum, kTilePositions, kTilePositions, out)
                      : exponentiate(scores, maximum, visible, padded, out);
    const __mmask16 small =
        _mm512_cmp_ps_mask(sums, _mm512_set1_ps(kLargestSum), _CMP_LT_OQ);
    float* all = memory_.sums.data() + int64_t{query} * kWideLanes;
    if (small != 0xFFFF) {
      const float before = maximum;
      maximum = std::max(before, highest(scores, visible));
      sums = exponentiate(scores, maximum, visible, padded, out);
      const __m512 factor = rough_exp2(_mm512_set1_ps(before - maximum));
      for (int32_t c = 0; c < value_tiles_; ++c) {
        float* results = result_line(query, c);
        _mm512_store_ps(results, _mm512_mul_ps(_mm512_load_ps(results), factor));
      }
      _mm512_store_ps(all, _mm512_mul_ps(_mm512_load_ps(all), factor));
    }
    _mm512_store_ps(all, _mm512_add_ps(_mm512_load_ps(all), sums));
  }

  // out = 2^(score - maximum) * the value's scale, zeros from `visible` on; returns the sums of the
  // weights without the scale.
  PAGEMILL_AVX512_INLINE __m512 exponentiate(const float* scores, float maximum, int32_t visible,
                                             int32_t padded, uint16_t* out) const {
    const __m512 shift = _mm512_set1_ps(maximum);
    __m512 sums = _mm512_setzero_ps();
    const int32_t whole = visible / 32 * 32;
    int32_t j = 0;
    PAGEMILL_UNROLL
    for (; j < whole; j += 32) {
      __m512 weights[2];
      PAGEMILL_UNROLL
      for (int u = 0; u < 2; ++u) {
        const int32_t at = j + u * kWideLanes;
        const __m512 power = rough_exp2(_mm512_fmsub_ps(
            _mm512_load_ps(scores + at / kUnit * kScoreStep), _mm512_load_ps(memory_.key_scales + at), shift));
        sums = _mm512_add_ps(sums, power);
        weights[u] = _mm512_mul_ps(power, _mm512_load_ps(memory_.value_scales + at));
      }
      _mm512_store_si512(out + j / 32 * kWeightStep,
                         reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(weights[1], weights[0])));
    }
    for (; j < padded; j += 32) {
      __m512 weights[2];
      PAGEMILL_UNROLL
      for (int u = 0; u < 2; ++u) {
        const int32_t at = j + u * kWideLanes;
        const __mmask16 seen = first_lanes(visible - at);
        const __m512 power = rough_exp2(_mm512_maskz_fmsub_ps(
            seen, _mm512_load_ps(scores + at / kUnit * kScoreStep), _mm512_load_ps(memory_.key_scales + at), shift));
        sums = _mm512_mask_add_ps(sums, seen, sums, power);
        weights[u] =
            _mm512_maskz_mul_ps(seen, power, _mm512_load_ps(memory_.value_scales + at));
      }
      _mm512_store_si512(out + j / 32 * kWeightStep,
                         reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(weights[1], weights[0])));
    }
    return sums;
  }

  PAGEMILL_AVX512_INLINE float highest(const float* scores, int32_t visible) const {
    __m512 most = _mm512_set1_ps(kNone);
    for (int32_t j = 0; j < visible; j += kWideLanes) {
      const __mmask16 seen = first_lanes(visible - j);
      const __m512 product =
          _mm512_mul_ps(_mm512_load_ps(scores + j / kUnit * kScoreStep), _mm512_load_ps(memory_.key_scales + j));
      most = _mm512_mask_max_ps(most, seen, most, product);
    }
    return _mm512_reduce_max_ps(most);
  }

  // Adds weights x values to a block's results, columns 16c on.
  template <int kColumns>
  void add_values(int32_t c, int32_t num_tiles, float* results) {
    constexpr int32_t kHalf = kTileHeight * kWideLanes;
    tile_load<0>(results, kTileBytes);
    tile_load<1>(results + kHalf, kTileBytes);
    if constexpr (kColumns == 2) {
      tile_load<2>(results + 2 * kHalf, kTileBytes);
      tile_load<3>(results + 3 * kHalf, kTileBytes);
    }
    const uint16_t* weights = memory_.weights;
    const uint16_t* values = memory_.values.data() + int64_t{c} * kTileNumbers;
    for (int32_t tile = 0; tile < num_tiles; ++tile) {
      tile_load<6>(values, kTileBytes);
      tile_load<4>(weights, kTileBytes);
      tile_load<5>(weights + kTileNumbers, kTileBytes);
      tile_product_bf16<0, 4, 6>();
      tile_product_bf16<1, 5, 6>();
      if constexpr (kColumns == 2) {
        tile_load<7>(values + kTileNumbers, kTileBytes);
        tile_product_bf16<2, 4, 7>();
        tile_product_bf16<3, 5, 7>();
      }
      values += int64_t{value_tiles_} * kTileNumbers;
      weights += kWeightStep;
    }
    tile_store<0>(results, kTileBytes);
    tile_store<1>(results + kHalf, kTileBytes);
    if constexpr (kColumns == 2) {
      tile_store<2>(results + 2 * kHalf, kTileBytes);
      tile_store<3>(results + 3 * kHalf, kTileBytes);
    }
  }

  const QuantizedRange& range_;
  Memory& memory_;
  const int32_t head_dim_;
  const int32_t depth_tiles_;  // of 32 numbers
  const int32_t value_tiles_;  // of 16 columns
  const int32_t padded_rows_;
  int32_t start_ = 0, count_ = 0;  // the tile's positions
};

}  // namespace

void attend_in_tiles(const QuantizedRange& range) {
  thread_local Memory memory;
  TileRange(range, memory).run();
}

}  // namespace pagemill

#else

namespace pagemill {

void attend_in_tiles(const QuantizedRange& range) { attend_on_integers(range); }

}  // namespace pagemill

#endif
