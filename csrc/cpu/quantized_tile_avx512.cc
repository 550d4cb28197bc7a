// AVX-512 with VNNI, chosen at run time (cpu/avx512.h).
#include "cpu/quantized_tile.h"

#if defined(__x86_64__)

#include "cpu/avx512_math.h"

#include <algorithm>
#include <cmath>

namespace pagemill {
namespace {

constexpr int32_t kUnit = 16;

// K and V are widened as they are read: a few queries need each number only once or twice.
PAGEMILL_AVX512_INLINE __m512i widened(const int8_t* source) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(source)));
}

PAGEMILL_AVX512_INLINE __m512i pair_everywhere(const int16_t* pair) {
  int32_t both;
  __builtin_memcpy(&both, pair, sizeof both);
  return _mm512_set1_epi32(both);
}

// One unit's scores. Two sums for each row, so that additions needn't wait for each other.
template <int kRows>
PAGEMILL_AVX512_INLINE void score_unit(const int16_t* queries, int32_t head_dim,
                                       const int8_t* keys, const float* scales, float* scores) {
  __m512i sums[2][kRows];
  PAGEMILL_UNROLL
  for (int i = 0; i < kRows; ++i) sums[0][i] = sums[1][i] = _mm512_setzero_si512();
  for (int32_t d = 0; d < head_dim; d += 4) {
    PAGEMILL_UNROLL
    for (int half = 0; half < 2; ++half) {
      const __m512i key = widened(keys + (d + 2 * half) * kUnit);
      PAGEMILL_UNROLL
      for (int i = 0; i < kRows; ++i) {
        const __m512i query = pair_everywhere(queries + int64_t{i} * head_dim + d + 2 * half);
        sums[half][i] = _mm512_dpwssd_epi32(sums[half][i], key, query);
      }
    }
  }
  const __m512 scale = _mm512_loadu_ps(scales);
  PAGEMILL_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const __m512i exact = _mm512_add_epi32(sums[0][i], sums[1][i]);
    _mm512_storeu_ps(scores + i * kQuantizedPositions, _mm512_mul_ps(_mm512_cvtepi32_ps(exact), scale));
  }
}

template <int kRows>
PAGEMILL_AVX512_INLINE void score_rows(const int16_t* queries, int32_t head_dim,
                                       const QuantizedTile& tile, int32_t padded, float* scores) {
  for (int32_t j = 0; j < padded; j += kUnit) {
    score_unit<kRows>(queries, head_dim, tile.keys[j / kUnit], tile.key_scales + j, scores + j);
  }
}

PAGEMILL_AVX512 void score(const int16_t* queries, int32_t num_rows, int32_t head_dim,
                           const QuantizedTile& tile, int32_t padded, float* scores) {
  switch (num_rows) {
    case 6: return score_rows<6>(queries, head_dim, tile, padded, scores);
    case 5: return score_rows<5>(queries, head_dim, tile, padded, scores);
    case 4: return score_rows<4>(queries, head_dim, tile, padded, scores);
    case 3: return score_rows<3>(queries, head_dim, tile, padded, scores);
    case 2: return score_rows<2>(queries, head_dim, tile, padded, scores);
    default: return score_rows<1>(queries, head_dim, tile, padded, scores);
  }
}

PAGEMILL_AVX512 float softmax(const float* scores, float scale, int32_t visible, int32_t padded,
                              const float* factors, float* maximum, float* sum, int16_t* out) {
  __m512 most = _mm512_set1_ps(-INFINITY);
  for (int32_t j = 0; j < visible; j += kWideLanes) {
    most = _mm512_mask_max_ps(most, first_lanes(visible - j), most, _mm512_loadu_ps(scores + j));
  }
  const float highest = std::max(*maximum, _mm512_reduce_max_ps(most) * scale);
  const __m512 shift = _mm512_set1_ps(highest), slope = _mm512_set1_ps(scale);
  __m512 total = _mm512_setzero_ps();
  for (int32_t j = 0; j < padded; j += kWideLanes) {
    const __mmask16 seen = first_lanes(visible - j);
    const __m512 weights = _mm512_maskz_mov_ps(
        seen, rough_exp_nonpositive(_mm512_fmsub_ps(_mm512_loadu_ps(scores + j), slope, shift)));
    total = _mm512_add_ps(total, weights);
    const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(weights, _mm512_loadu_ps(factors + j)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + j), _mm512_cvtsepi32_epi16(whole));
  }
  const float factor = *maximum == highest ? 1.0f : std::exp(*maximum - highest);
  *maximum = highest;
  *sum = *sum * factor + _mm512_reduce_add_ps(total);
  return factor;
}

// Columns d to d + 16 * kVectors of a tile's values.
template <int kRows, int kVectors>
PAGEMILL_AVX512_INLINE void add_columns(const int16_t* weights, int32_t head_dim, int32_t d,
                                        const QuantizedTile& tile, int32_t padded,
                                        const float* factors, float scale, float* results) {
  __m512i sums[kRows][kVectors];
  PAGEMILL_UNROLL
  for (int i = 0; i < kRows; ++i) {
    PAGEMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[i][v] = _mm512_setzero_si512();
  }
  for (int32_t j = 0; j < padded; j += 2) {
    const int8_t* line = tile.values[j / kUnit] + (int64_t{j % kUnit / 2} * head_dim + d) * 2;
    __m512i values[kVectors];
    PAGEMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) values[v] = widened(line + v * 2 * kWideLanes);
    PAGEMILL_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const __m512i weight = pair_everywhere(weights + i * kQuantizedPositions + j);
      PAGEMILL_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        sums[i][v] = _mm512_dpwssd_epi32(sums[i][v], values[v], weight);
      }
    }
  }
  PAGEMILL_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const __m512 factor = _mm512_set1_ps(factors[i]), scales = _mm512_set1_ps(scale);
    PAGEMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      float* out = results + int64_t{i} * head_dim + d + v * kWideLanes;
      const __m512 before = _mm512_mul_ps(_mm512_loadu_ps(out), factor);
      _mm512_storeu_ps(out, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[i][v]), scales, before));
    }
  }
}

template <int kRows>
PAGEMILL_AVX512_INLINE void add_rows(const int16_t* weights, int32_t head_dim,
                                     const QuantizedTile& tile, int32_t padded,
                                     const float* factors, float scale, float* results) {
  int32_t d = 0;
  for (; d + 64 <= head_dim; d += 64) {
    add_columns<kRows, 4>(weights, head_dim, d, tile, padded, factors, scale, results);
  }
  for (; d < head_dim; d += 16) {
    add_columns<kRows, 1>(weights, head_dim, d, tile, padded, factors, scale, results);
  }
}

PAGEMILL_AVX512 void add_values(const int16_t* weights, int32_t num_rows, int32_t head_dim,
                                const QuantizedTile& tile, int32_t padded, const float* factors,
                                float scale, float* results) {
  switch (num_rows) {
    case 6: return add_rows<6>(weights, head_dim, tile, padded, factors, scale, results);
    case 5: return add_rows<5>(weights, head_dim, tile, padded, factors, scale, results);
    case 4: return add_rows<4>(weights, head_dim, tile, padded, factors, scale, results);
    case 3: return add_rows<3>(weights, head_dim, tile, padded, factors, scale, results);
    case 2: return add_rows<2>(weights, head_dim, tile, padded, factors, scale, results);
    default: return add_rows<1>(weights, head_dim, tile, padded, factors, scale, results);
  }
}

constexpr QuantizedTileKernels kKernels{nullptr, score, softmax, add_values};

}  // namespace

const QuantizedTileKernels* avx512_quantized_kernels() { return &kKernels; }

}  // namespace pagemill

#else

namespace pagemill {

const QuantizedTileKernels* avx512_quantized_kernels() { return nullptr; }

}  // namespace pagemill

#endif
