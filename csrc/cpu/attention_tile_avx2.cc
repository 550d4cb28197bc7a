// AVX2 and FMA, chosen at run time (cpu/avx2.h).
#include "cpu/attention_tile.h"

#if defined(__x86_64__)

#include <algorithm>
#include <cmath>

#include "cpu/avx2_math.h"

namespace pagemill {
namespace {

PAGEMILL_AVX2_INLINE void transpose_8x8(const float* const* rows, int32_t column, float* out) {
  __m256 r[8];
  PAGEMILL_UNROLL
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(rows[i] + column);
  __m256 t[8];
  PAGEMILL_UNROLL
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  PAGEMILL_UNROLL
  for (int i = 0; i < 2; ++i) {
    r[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    r[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xEE);
    r[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    r[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xEE);
  }
  PAGEMILL_UNROLL
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(out + i * kTilePositions, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(out + (i + 4) * kTilePositions, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}

PAGEMILL_AVX2 void transpose(const float* const* rows, int32_t count, int32_t head_dim,
                             float* out) {
  const int32_t padded = (count + 15) / 16 * 16;
  const int32_t whole_rows = count / kLanes * kLanes;
  const int32_t whole_columns = head_dim / kLanes * kLanes;
  for (int32_t j = 0; j < whole_rows; j += kLanes) {
    for (int32_t d = 0; d < whole_columns; d += kLanes) {
      transpose_8x8(rows + j, d, out + static_cast<int64_t>(d) * kTilePositions + j);
    }
  }
  for (int32_t d = 0; d < head_dim; ++d) {
    float* line = out + static_cast<int64_t>(d) * kTilePositions;
    const int32_t first = d < whole_columns ? whole_rows : 0;
    for (int32_t j = first; j < count; ++j) line[j] = rows[j][d];
    std::fill(line + count, line + padded, 0.0f);
  }
}

// Rows x 16 columns of the product in registers: 6 rows make 12 accumulators, which hides the
// latency of the multiply-adds and leaves room for the two vectors of b.
template <int kRows, int kVectors>
PAGEMILL_AVX2_INLINE void multiply_block(const float* a, int32_t lda, const float* const* b_rows,
                                         int32_t column, float* c, int32_t ldc, int32_t depth,
                                         bool accumulate) {
  __m256 sums[kRows][kVectors];
  PAGEMILL_UNROLL
  for (int i = 0; i < kRows; ++i) {
    PAGEMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      sums[i][v] = accumulate ? _mm256_loadu_ps(c + static_cast<int64_t>(i) * ldc + v * kLanes)
                              : _mm256_setzero_ps();
    }
  }
  for (int32_t k = 0; k < depth; ++k) {
    __m256 b[kVectors];
    PAGEMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) b[v] = _mm256_loadu_ps(b_rows[k] + column + v * kLanes);
    PAGEMILL_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const __m256 factor = _mm256_broadcast_ss(a + static_cast<int64_t>(i) * lda + k);
      PAGEMILL_UNROLL
      for (int v = 0; v < kVectors; ++v) sums[i][v] = _mm256_fmadd_ps(factor, b[v], sums[i][v]);
    }
  }
  PAGEMILL_UNROLL
  for (int i = 0; i < kRows; ++i) {
    PAGEMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      _mm256_storeu_ps(c + static_cast<int64_t>(i) * ldc + v * kLanes, sums[i][v]);
    }
  }
}

template <int kRows>
PAGEMILL_AVX2_INLINE void multiply_rows(const float* a, int32_t lda, const float* const* b_rows,
                                        float* c, int32_t ldc, int32_t num_columns, int32_t depth,
                                        bool accumulate) {
  int32_t j = 0;
  for (; j + 2 * kLanes <= num_columns; j += 2 * kLanes) {
    multiply_block<kRows, 2>(a, lda, b_rows, j, c + j, ldc, depth, accumulate);
  }
  for (; j + kLanes <= num_columns; j += kLanes) {
    multiply_block<kRows, 1>(a, lda, b_rows, j, c + j, ldc, depth, accumulate);
  }
  for (; j < num_columns; ++j) {
    PAGEMILL_UNROLL
    for (int i = 0; i < kRows; ++i) {
      float sum = accumulate ? c[static_cast<int64_t>(i) * ldc + j] : 0.0f;
      for (int32_t k = 0; k < depth; ++k) {
        sum += a[static_cast<int64_t>(i) * lda + k] * b_rows[k][j];
      }
      c[static_cast<int64_t>(i) * ldc + j] = sum;
    }
  }
}

PAGEMILL_AVX2 void multiply(const float* a, int32_t lda, const float* const* b_rows, float* c,
                            int32_t ldc, int32_t num_rows, int32_t num_columns, int32_t depth,
                            bool accumulate) {
  int32_t i = 0;
  for (; i + 6 <= num_rows; i += 6) {
    multiply_rows<6>(a + static_cast<int64_t>(i) * lda, lda, b_rows,
                     c + static_cast<int64_t>(i) * ldc, ldc, num_columns, depth, accumulate);
  }
  a += static_cast<int64_t>(i) * lda;
  c += static_cast<int64_t>(i) * ldc;
  switch (num_rows - i) {
    case 5: return multiply_rows<5>(a, lda, b_rows, c, ldc, num_columns, depth, accumulate);
    case 4: return multiply_rows<4>(a, lda, b_rows, c, ldc, num_columns, depth, accumulate);
    case 3: return multiply_rows<3>(a, lda, b_rows, c, ldc, num_columns, depth, accumulate);
    case 2: return multiply_rows<2>(a, lda, b_rows, c, ldc, num_columns, depth, accumulate);
    case 1: return multiply_rows<1>(a, lda, b_rows, c, ldc, num_columns, depth, accumulate);
    default: return;
  }
}

PAGEMILL_AVX2 float softmax(float* scores, int32_t visible, int32_t padded, float* maximum,
                            float* sum) {
  if (visible == 0) {
    std::fill(scores, scores + padded, 0.0f);
    return 1.0f;
  }
  const int32_t whole = visible / kLanes * kLanes;
  __m256 highest_lanes = _mm256_set1_ps(*maximum);
  for (int32_t j = 0; j < whole; j += kLanes) {
    highest_lanes = _mm256_max_ps(highest_lanes, _mm256_loadu_ps(scores + j));
  }
  float highest = highest_lane(highest_lanes);
  for (int32_t j = whole; j < visible; ++j) highest = std::max(highest, scores[j]);
  // Positions that can't be seen are far below any maximum: their weight comes out as 0.
  const __m256i lane_numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256 shift = _mm256_set1_ps(highest);
  __m256 total = _mm256_setzero_ps();
  int32_t j = 0;
  for (; j < visible; j += kLanes) {
    __m256 weights = exp_nonpositive(_mm256_sub_ps(_mm256_loadu_ps(scores + j), shift));
    if (j + kLanes > visible) {
      const __m256i seen = _mm256_cmpgt_epi32(_mm256_set1_epi32(visible - j), lane_numbers);
      weights = _mm256_and_ps(weights, _mm256_castsi256_ps(seen));
    }
    _mm256_storeu_ps(scores + j, weights);
    total = _mm256_add_ps(total, weights);
  }
  for (; j < padded; ++j) scores[j] = 0.0f;
  const float factor = std::exp(*maximum - highest);
  *maximum = highest;
  *sum = *sum * factor + sum_of_lanes(total);
  return factor;
}

PAGEMILL_AVX2 void scale(float* values, int32_t count, float factor) {
  const __m256 factors = _mm256_set1_ps(factor);
  int32_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    _mm256_storeu_ps(values + i, _mm256_mul_ps(_mm256_loadu_ps(values + i), factors));
  }
  for (; i < count; ++i) values[i] *= factor;
}

constexpr AttentionTileKernels kKernels{transpose, multiply, softmax, scale};

}  // namespace

const AttentionTileKernels* avx2_tile_kernels() { return &kKernels; }

}  // namespace pagemill

#else

namespace pagemill {

const AttentionTileKernels* avx2_tile_kernels() { return nullptr; }

}  // namespace pagemill

#endif
