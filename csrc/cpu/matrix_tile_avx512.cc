// AVX-512 with VNNI, chosen at run time (cpu/avx512.h). What isn't here is AVX2's.
#include "cpu/matrix_tile.h"
#include "cpu/packed_matrix.h"

#if defined(__x86_64__)

#include <algorithm>
#include <cmath>

#include "cpu/avx512.h"

namespace pagemill {
namespace {

// Two sums for each row, of even and of odd inputs: enough to hide the latency of the multiply-adds.
template <int kRows>
PAGEMILL_AVX512_INLINE void multiply_rows(const float* rows, int64_t stride, const float* panel,
                                          int32_t depth, float* out, int64_t out_stride) {
  __m512 sums[kRows][2];
  PAGEMILL_UNROLL
  for (int i = 0; i < kRows; ++i) sums[i][0] = sums[i][1] = _mm512_setzero_ps();
  int32_t k = 0;
  for (; k + 2 <= depth; k += 2, panel += 2 * kPanelColumns) {
    const __m512 even = _mm512_loadu_ps(panel), odd = _mm512_loadu_ps(panel + kPanelColumns);
    PAGEMILL_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const float* row = rows + i * stride + k;
      sums[i][0] = _mm512_fmadd_ps(_mm512_set1_ps(row[0]), even, sums[i][0]);
      sums[i][1] = _mm512_fmadd_ps(_mm512_set1_ps(row[1]), odd, sums[i][1]);
    }
  }
  PAGEMILL_UNROLL
  for (int i = 0; i < kRows; ++i) {
    __m512 sum = _mm512_add_ps(sums[i][0], sums[i][1]);
    if (k < depth) {
      sum = _mm512_fmadd_ps(_mm512_set1_ps(rows[i * stride + k]), _mm512_loadu_ps(panel), sum);
    }
    _mm512_storeu_ps(out + i * out_stride, sum);
  }
}

PAGEMILL_AVX512 void multiply(const float* rows, int64_t stride, const float* panel, int32_t depth,
                              int32_t num_rows, float* out, int64_t out_stride) {
  switch (num_rows) {
    case 6: return multiply_rows<6>(rows, stride, panel, depth, out, out_stride);
    case 5: return multiply_rows<5>(rows, stride, panel, depth, out, out_stride);
    case 4: return multiply_rows<4>(rows, stride, panel, depth, out, out_stride);
    case 3: return multiply_rows<3>(rows, stride, panel, depth, out, out_stride);
    case 2: return multiply_rows<2>(rows, stride, panel, depth, out, out_stride);
    default: return multiply_rows<1>(rows, stride, panel, depth, out, out_stride);
  }
}

// As in pair_product_avx2.h. A step of the panel is one vector, and a row's part of it one
// instruction.
template <int kRows>
PAGEMILL_AVX512_INLINE void pair_rows(const int16_t* rows, int64_t row_stride,
                                      const int16_t* panel, int64_t panel_stride,
                                      int64_t num_pairs, int32_t* sums) {
  __m512i exact[kRows];
  PAGEMILL_UNROLL
  for (int i = 0; i < kRows; ++i) exact[i] = _mm512_setzero_si512();
  for (int64_t p = 0; p < num_pairs; ++p, panel += panel_stride) {
    const __m512i weights = _mm512_loadu_si512(panel);
    PAGEMILL_UNROLL
    for (int i = 0; i < kRows; ++i) {
      int32_t two;
      __builtin_memcpy(&two, rows + i * row_stride + 2 * p, sizeof two);
      exact[i] = _mm512_dpwssd_epi32(exact[i], _mm512_set1_epi32(two), weights);
    }
  }
  PAGEMILL_UNROLL
  for (int i = 0; i < kRows; ++i) _mm512_storeu_si512(sums + i * kPanelColumns, exact[i]);
}

PAGEMILL_AVX512 void pair_product(const int16_t* rows, int64_t row_stride, const int16_t* panel,
                                  int64_t panel_stride, int64_t num_pairs, int32_t num_rows,
                                  int32_t* sums) {
  switch (num_rows) {
    case 6: return pair_rows<6>(rows, row_stride, panel, panel_stride, num_pairs, sums);
    case 5: return pair_rows<5>(rows, row_stride, panel, panel_stride, num_pairs, sums);
    case 4: return pair_rows<4>(rows, row_stride, panel, panel_stride, num_pairs, sums);
    case 3: return pair_rows<3>(rows, row_stride, panel, panel_stride, num_pairs, sums);
    case 2: return pair_rows<2>(rows, row_stride, panel, panel_stride, num_pairs, sums);
    default: return pair_rows<1>(rows, row_stride, panel, panel_stride, num_pairs, sums);
  }
}

PAGEMILL_AVX512 void widen_int8(const int8_t* source, int64_t num_pairs, const uint8_t* factors,
                                int16_t* out) {
  __m512i twice = _mm512_set1_epi16(1);
  if (factors != nullptr) {
    const __m128i narrow = _mm_loadu_si128(reinterpret_cast<const __m128i*>(factors));
    twice = _mm512_mullo_epi32(_mm512_cvtepu8_epi32(narrow), _mm512_set1_epi32(0x10001));
  }
  for (int64_t p = 0; p < num_pairs; ++p, source += 32, out += 32) {
    const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
    const __m512i wide = _mm512_cvtepi8_epi16(narrow);
    _mm512_storeu_si512(out, factors == nullptr ? wide : _mm512_mullo_epi16(wide, twice));
  }
}

PAGEMILL_AVX512 float quantize(const float* row, int32_t count, int32_t padded, float limit,
                               int16_t* out) {
  __m512 lanes = _mm512_setzero_ps();
  int32_t k = 0;
  for (; k + kWideLanes <= count; k += kWideLanes) {
    lanes = _mm512_max_ps(lanes, _mm512_abs_ps(_mm512_loadu_ps(row + k)));
  }
  float largest = _mm512_reduce_max_ps(lanes);
  for (; k < count; ++k) largest = std::max(largest, std::fabs(row[k]));
  const float inverse = largest > 0.0f ? limit / largest : 0.0f;
  const __m512 factor = _mm512_set1_ps(inverse);
  for (k = 0; k + kWideLanes <= count; k += kWideLanes) {
    const __m512i wide = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(row + k), factor));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + k), _mm512_cvtsepi32_epi16(wide));
  }
  for (; k < count; ++k) out[k] = static_cast<int16_t>(std::nearbyint(row[k] * inverse));
  std::fill(out + count, out + padded, int16_t{0});
  return largest / limit;
}

PAGEMILL_AVX512 void scale_sums(const int32_t* sums, const float* scales, const float* row_scales,
                                int32_t num_rows, bool accumulate, float* out,
                                int64_t out_stride) {
  const __m512 columns = _mm512_loadu_ps(scales);
  for (int32_t i = 0; i < num_rows; ++i, sums += kPanelColumns, out += out_stride) {
    const __m512 row = _mm512_set1_ps(row_scales == nullptr ? 1.0f : row_scales[i]);
    const __m512 before = accumulate ? _mm512_loadu_ps(out) : _mm512_setzero_ps();
    const __m512 exact = _mm512_cvtepi32_ps(_mm512_loadu_si512(sums));
    _mm512_storeu_ps(out, _mm512_fmadd_ps(exact, _mm512_mul_ps(columns, row), before));
  }
}

MatrixTileKernels kernels() {
  MatrixTileKernels kernels = *avx2_matrix_kernels();
  kernels.float32 = multiply;
  kernels.int16 = pair_product;
  kernels.widen_int8 = widen_int8;
  kernels.quantize = quantize;
  kernels.scale_sums = scale_sums;
  return kernels;
}

}  // namespace

const MatrixTileKernels* avx512_matrix_kernels() {
  static const MatrixTileKernels table = kernels();
  return &table;
}

}  // namespace pagemill

#else

namespace pagemill {

const MatrixTileKernels* avx512_matrix_kernels() { return nullptr; }

}  // namespace pagemill

#endif
