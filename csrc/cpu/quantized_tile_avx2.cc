// AVX2 and FMA, chosen at run time (cpu/avx2.h).
#include "cpu/quantized_panels.h"

#if defined(__x86_64__)

#include <algorithm>
#include <cmath>

#include "cpu/avx2_math.h"

namespace pagemill {
namespace {

PAGEMILL_AVX2 float softmax(const float* scores, float scale, int32_t visible, int32_t padded,
                            const float* factors, float* maximum, float* sum, int16_t* out) {
  const int32_t whole = visible / kLanes * kLanes;
  const __m256i lane_numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  __m256 highest_lanes = _mm256_set1_ps(-INFINITY);
  for (int32_t j = 0; j < whole; j += kLanes) {
    highest_lanes = _mm256_max_ps(highest_lanes, _mm256_loadu_ps(scores + j));
  }
  float highest = highest_lane(highest_lanes);
  for (int32_t j = whole; j < visible; ++j) highest = std::max(highest, scores[j]);
  highest = std::max(*maximum, highest * scale);
  const __m256 shift = _mm256_set1_ps(highest), slope = _mm256_set1_ps(scale);
  __m256 total = _mm256_setzero_ps();
  for (int32_t j = 0; j < padded; j += kLanes) {
    __m128i narrow = _mm_setzero_si128();
    if (j < visible) {
      __m256 weights =
          rough_exp_nonpositive(_mm256_fmsub_ps(_mm256_loadu_ps(scores + j), slope, shift));
      if (j + kLanes > visible) {
        const __m256i seen = _mm256_cmpgt_epi32(_mm256_set1_epi32(visible - j), lane_numbers);
        weights = _mm256_and_ps(weights, _mm256_castsi256_ps(seen));
      }
      total = _mm256_add_ps(total, weights);
      const __m256i wide =
          _mm256_cvtps_epi32(_mm256_mul_ps(weights, _mm256_loadu_ps(factors + j)));
      narrow = _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + j), narrow);
  }
  const float factor = *maximum == highest ? 1.0f : std::exp(*maximum - highest);
  *maximum = highest;
  *sum = *sum * factor + sum_of_lanes(total);
  return factor;
}

PAGEMILL_AVX2 void accumulate(const int32_t* sums, int32_t num_rows, const float* factors,
                              float scale, float* out, int64_t out_stride) {
  const __m256 scales = _mm256_set1_ps(scale);
  for (int32_t i = 0; i < num_rows; ++i, sums += kPanelColumns, out += out_stride) {
    const __m256 factor = _mm256_set1_ps(factors[i]);
    PAGEMILL_UNROLL
    for (int j = 0; j < kPanelColumns; j += kLanes) {
      const __m256i exact = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums + j));
      const __m256 before = _mm256_mul_ps(_mm256_loadu_ps(out + j), factor);
      _mm256_storeu_ps(out + j, _mm256_fmadd_ps(_mm256_cvtepi32_ps(exact), scales, before));
    }
  }
}

void widen(const int8_t* source, int64_t count, int16_t* out) {
  avx2_matrix_kernels()->widen_int8(source, count / 32, nullptr, out);
}

void score(const int16_t* queries, int32_t num_rows, int32_t head_dim, const QuantizedTile& tile,
           int32_t padded, float* scores) {
  score_by_panels(*avx2_matrix_kernels(), queries, num_rows, head_dim, tile, padded, scores);
}

void add_values(const int16_t* weights, int32_t num_rows, int32_t head_dim,
                const QuantizedTile& tile, int32_t padded, const float* factors, float scale,
                float* results) {
  add_values_by_panels(*avx2_matrix_kernels(), weights, num_rows, head_dim, tile, padded, results,
                       [&](const int32_t* sums, float* out) {
                         accumulate(sums, num_rows, factors, scale, out, head_dim);
                       });
}

constexpr QuantizedTileKernels kKernels{widen, score, softmax, add_values};

}  // namespace

const QuantizedTileKernels* avx2_quantized_kernels() { return &kKernels; }

}  // namespace pagemill

#else

namespace pagemill {

const QuantizedTileKernels* avx2_quantized_kernels() { return nullptr; }

}  // namespace pagemill

#endif
