// AVX2 and FMA, chosen at run time (cpu/avx2.h).
#include "cpu/matrix_tile.h"
#include "cpu/packed_matrix.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cmath>

#include "cpu/avx2.h"

namespace pagemill {
namespace {

PAGEMILL_AVX2_INLINE __m256 load_weights(const float* source) { return _mm256_loadu_ps(source); }

PAGEMILL_AVX2_INLINE __m256 load_weights(const uint16_t* source) {
  const __m128i narrow = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(narrow), 16));
}

// 6 rows x 16 columns make 12 sums in registers: enough to hide the latency of the
// multiply-adds, with room for the two vectors of weights.
template <int kRows, typename Weight>
PAGEMILL_AVX2_INLINE void multiply_rows(const float* rows, int64_t stride, const Weight* panel,
                                        int32_t depth, float* out) {
  __m256 sums[kRows][2];
  PAGEMILL_UNROLL
  for (int i = 0; i < kRows; ++i) sums[i][0] = sums[i][1] = _mm256_setzero_ps();
  for (int32_t k = 0; k < depth; ++k) {
    const __m256 low = load_weights(panel);
    const __m256 high = load_weights(panel + kLanes);
    panel += kPanelColumns;
    PAGEMILL_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const __m256 factor = _mm256_broadcast_ss(rows + i * stride + k);
      sums[i][0] = _mm256_fmadd_ps(factor, low, sums[i][0]);
      sums[i][1] = _mm256_fmadd_ps(factor, high, sums[i][1]);
    }
  }
  PAGEMILL_UNROLL
  for (int i = 0; i < kRows; ++i) {
    _mm256_storeu_ps(out + i * kPanelColumns, sums[i][0]);
    _mm256_storeu_ps(out + i * kPanelColumns + kLanes, sums[i][1]);
  }
}

template <typename Weight>
PAGEMILL_AVX2 void multiply(const float* rows, int64_t stride, const Weight* panel, int32_t depth,
                            int32_t num_rows, float* sums) {
  switch (num_rows) {
    case 6: return multiply_rows<6>(rows, stride, panel, depth, sums);
    case 5: return multiply_rows<5>(rows, stride, panel, depth, sums);
    case 4: return multiply_rows<4>(rows, stride, panel, depth, sums);
    case 3: return multiply_rows<3>(rows, stride, panel, depth, sums);
    case 2: return multiply_rows<2>(rows, stride, panel, depth, sums);
    default: return multiply_rows<1>(rows, stride, panel, depth, sums);
  }
}

// Weights are widened to 16 bits in registers; two products are added exactly by one
// instruction (vpmaddwd), without the saturation of the 8-bit form.
template <int kRows>
PAGEMILL_AVX2_INLINE void multiply_rows_int8(const int16_t* rows, int64_t stride,
                                             const int8_t* panel, int32_t depth, int32_t* out) {
  __m256i sums[kRows][2];
  PAGEMILL_UNROLL
  for (int i = 0; i < kRows; ++i) sums[i][0] = sums[i][1] = _mm256_setzero_si256();
  for (int32_t k = 0; k < depth; k += 2) {
    const __m256i low =
        _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(panel)));
    const __m256i high =
        _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(panel + 16)));
    panel += 2 * kPanelColumns;
    PAGEMILL_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const __m256i pair = _mm256_castps_si256(
          _mm256_broadcast_ss(reinterpret_cast<const float*>(rows + i * stride + k)));
      sums[i][0] = _mm256_add_epi32(sums[i][0], _mm256_madd_epi16(pair, low));
      sums[i][1] = _mm256_add_epi32(sums[i][1], _mm256_madd_epi16(pair, high));
    }
  }
  PAGEMILL_UNROLL
  for (int i = 0; i < kRows; ++i) {
    auto* target = reinterpret_cast<__m256i*>(out + i * kPanelColumns);
    _mm256_storeu_si256(target, sums[i][0]);
    _mm256_storeu_si256(target + 1, sums[i][1]);
  }
}

PAGEMILL_AVX2 void multiply_int8(const int16_t* rows, int64_t stride, const int8_t* panel,
                                 int32_t depth, int32_t num_rows, int32_t* sums) {
  switch (num_rows) {
    case 6: return multiply_rows_int8<6>(rows, stride, panel, depth, sums);
    case 5: return multiply_rows_int8<5>(rows, stride, panel, depth, sums);
    case 4: return multiply_rows_int8<4>(rows, stride, panel, depth, sums);
    case 3: return multiply_rows_int8<3>(rows, stride, panel, depth, sums);
    case 2: return multiply_rows_int8<2>(rows, stride, panel, depth, sums);
    default: return multiply_rows_int8<1>(rows, stride, panel, depth, sums);
  }
}

PAGEMILL_AVX2 float quantize(const float* row, int32_t count, int32_t padded, float limit,
                             int16_t* out) {
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
  __m256 lanes = _mm256_setzero_ps();
  int32_t k = 0;
  for (; k + kLanes <= count; k += kLanes) {
    lanes = _mm256_max_ps(lanes, _mm256_and_ps(_mm256_loadu_ps(row + k), magnitude));
  }
  alignas(32) float each[kLanes];
  _mm256_store_ps(each, lanes);
  float largest = *std::max_element(each, each + kLanes);
  for (; k < count; ++k) largest = std::max(largest, std::fabs(row[k]));
  const float inverse = largest > 0.0f ? limit / largest : 0.0f;
  const __m256 factor = _mm256_set1_ps(inverse);
  for (k = 0; k + kLanes <= count; k += kLanes) {
    const __m256i wide = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(row + k), factor));
    const __m128i narrow = _mm_packs_epi32(_mm256_castsi256_si128(wide),
                                           _mm256_extracti128_si256(wide, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + k), narrow);
  }
  for (; k < count; ++k) out[k] = static_cast<int16_t>(std::nearbyint(row[k] * inverse));
  std::fill(out + count, out + padded, int16_t{0});
  return largest / limit;
}

constexpr MatrixTileKernels kKernels{multiply<float>, multiply<uint16_t>, multiply_int8, quantize};

}  // namespace

const MatrixTileKernels* avx2_matrix_kernels() { return &kKernels; }

}  // namespace pagemill

#else

namespace pagemill {

const MatrixTileKernels* avx2_matrix_kernels() { return nullptr; }

}  // namespace pagemill

#endif
