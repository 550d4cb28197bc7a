// AVX-512, chosen at run time (cpu/avx512.h).
#include "cpu/attention_tile.h"

#if defined(__x86_64__)

#include "cpu/avx512_math.h"

#include <algorithm>
#include <cmath>

namespace pagemill {
namespace {

void transpose(const float* const* rows, int32_t count, int32_t head_dim, float* out) {
  avx2_tile_kernels()->transpose(rows, count, head_dim, out);
}

// Rows x columns of the product in registers: 6 rows of 4 vectors are 24 sums, which hides the
// latency of the multiply-adds. The last vector is masked.
template <int kRows, int kVectors>
PAGEMILL_AVX512_INLINE void multiply_block(const float* a, int32_t lda, const float* const* b_rows,
                                           int32_t column, __mmask16 last, float* c, int32_t ldc,
                                           int32_t depth, bool accumulate) {
  __m512 sums[kRows][kVectors];
  PAGEMILL_UNROLL
  for (int i = 0; i < kRows; ++i) {
    PAGEMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const __mmask16 there = v == kVectors - 1 ? last : 0xFFFF;
      const float* place = c + static_cast<int64_t>(i) * ldc + v * kWideLanes;
      sums[i][v] = accumulate ? _mm512_maskz_loadu_ps(there, place) : _mm512_setzero_ps();
    }
  }
  for (int32_t k = 0; k < depth; ++k) {
    __m512 b[kVectors];
    PAGEMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const __mmask16 there = v == kVectors - 1 ? last : 0xFFFF;
      b[v] = _mm512_maskz_loadu_ps(there, b_rows[k] + column + v * kWideLanes);
    }
    PAGEMILL_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const __m512 factor = _mm512_set1_ps(a[static_cast<int64_t>(i) * lda + k]);
      PAGEMILL_UNROLL
      for (int v = 0; v < kVectors; ++v) sums[i][v] = _mm512_fmadd_ps(factor, b[v], sums[i][v]);
    }
  }
  PAGEMILL_UNROLL
  for (int i = 0; i < kRows; ++i) {
    PAGEMILL_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const __mmask16 there = v == kVectors - 1 ? last : 0xFFFF;
      float* place = c + static_cast<int64_t>(i) * ldc + v * kWideLanes;
      _mm512_mask_storeu_ps(place, there, sums[i][v]);
    }
  }
}

template <int kRows>
PAGEMILL_AVX512_INLINE void multiply_rows(const float* a, int32_t lda, const float* const* b_rows,
                                          float* c, int32_t ldc, int32_t num_columns,
                                          int32_t depth, bool accumulate) {
  int32_t j = 0;
  for (; j + 4 * kWideLanes <= num_columns; j += 4 * kWideLanes) {
    multiply_block<kRows, 4>(a, lda, b_rows, j, 0xFFFF, c + j, ldc, depth, accumulate);
  }
  for (; j < num_columns; j += kWideLanes) {
    multiply_block<kRows, 1>(a, lda, b_rows, j, first_lanes(num_columns - j), c + j, ldc, depth,
                             accumulate);
  }
}

PAGEMILL_AVX512 void multiply(const float* a, int32_t lda, const float* const* b_rows, float* c,
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

PAGEMILL_AVX512 float softmax(float* scores, int32_t visible, int32_t padded, float* maximum,
                              float* sum) {
  __m512 most = _mm512_set1_ps(*maximum);
  for (int32_t j = 0; j < visible; j += kWideLanes) {
    most = _mm512_mask_max_ps(most, first_lanes(visible - j), most, _mm512_loadu_ps(scores + j));
  }
  const float highest = _mm512_reduce_max_ps(most);
  const __m512 shift = _mm512_set1_ps(highest);
  __m512 total = _mm512_setzero_ps();
  for (int32_t j = 0; j < padded; j += kWideLanes) {
    const __m512 difference = _mm512_sub_ps(_mm512_loadu_ps(scores + j), shift);
    const __m512 weights =
        _mm512_maskz_mov_ps(first_lanes(visible - j), exp_nonpositive(difference));
    _mm512_storeu_ps(scores + j, weights);
    total = _mm512_add_ps(total, weights);
  }
  if (visible == 0) return 1.0f;
  const float factor = std::exp(*maximum - highest);
  *maximum = highest;
  *sum = *sum * factor + _mm512_reduce_add_ps(total);
  return factor;
}

PAGEMILL_AVX512 void scale(float* values, int32_t count, float factor) {
  const __m512 factors = _mm512_set1_ps(factor);
  for (int32_t i = 0; i < count; i += kWideLanes) {
    const __mmask16 there = first_lanes(count - i);
    const __m512 product = _mm512_mul_ps(_mm512_maskz_loadu_ps(there, values + i), factors);
    _mm512_mask_storeu_ps(values + i, there, product);
  }
}

constexpr AttentionTileKernels kKernels{transpose, multiply, softmax, scale};

}  // namespace

const AttentionTileKernels* avx512_tile_kernels() { return &kKernels; }

}  // namespace pagemill

#else

namespace pagemill {

const AttentionTileKernels* avx512_tile_kernels() { return nullptr; }

}  // namespace pagemill

#endif
