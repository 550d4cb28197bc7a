// AVX2 and FMA, chosen at run time (cpu/avx2.h).
#include "cpu/matrix_tile.h"
#include "cpu/packed_matrix.h"

#if defined(__x86_64__)

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "cpu/avx2_math.h"
#include "cpu/pair_product_avx2.h"

namespace pagemill {
namespace {

// Eight columns of a pair of inputs in bfloat16 become a vector for each of the two.
PAGEMILL_AVX2_INLINE __m256i load_pairs(const uint16_t* source) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
}
PAGEMILL_AVX2_INLINE __m256 first_of(__m256i pairs) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}
PAGEMILL_AVX2_INLINE __m256 second_of(__m256i pairs) {
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xFFFF0000u));
  return _mm256_castsi256_ps(_mm256_and_si256(pairs, upper));
}

// One input's part of the sums.
template <int kRows>
PAGEMILL_AVX2_INLINE void add_input(const float* rows, int64_t stride, __m256 low, __m256 high,
                                    __m256 (&sums)[kRows][2]) {
  PAGEMILL_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const __m256 factor = _mm256_broadcast_ss(rows + i * stride);
    sums[i][0] = _mm256_fmadd_ps(factor, low, sums[i][0]);
    sums[i][1] = _mm256_fmadd_ps(factor, high, sums[i][1]);
  }
}

// 6 rows x 16 columns make 12 sums in registers: enough to hide the latency of the
// multiply-adds, with room for the two vectors of weights.
template <int kRows, typename Weight>
PAGEMILL_AVX2_INLINE void multiply_rows(const float* rows, int64_t stride, const Weight* panel,
                                        int32_t depth, float* out, int64_t out_stride) {
  __m256 sums[kRows][2];
  PAGEMILL_UNROLL
  for (int i = 0; i < kRows; ++i) sums[i][0] = sums[i][1] = _mm256_setzero_ps();
  if constexpr (std::is_same_v<Weight, float>) {
    for (int32_t k = 0; k < depth; ++k, panel += kPanelColumns) {
      add_input<kRows>(rows + k, stride, _mm256_loadu_ps(panel), _mm256_loadu_ps(panel + kLanes), sums);
    }
  } else {
    for (int32_t k = 0; k < depth; k += 2, panel += 2 * kPanelColumns) {
      const __m256i low = load_pairs(panel), high = load_pairs(panel + kPanelColumns);
      add_input<kRows>(rows + k, stride, first_of(low), first_of(high), sums);
      add_input<kRows>(rows + k + 1, stride, second_of(low), second_of(high), sums);
    }
  }
  PAGEMILL_UNROLL
  for (int i = 0; i < kRows; ++i) {
    _mm256_storeu_ps(out + i * out_stride, sums[i][0]);
    _mm256_storeu_ps(out + i * out_stride + kLanes, sums[i][1]);
  }
}

template <typename Weight>
PAGEMILL_AVX2 void multiply(const float* rows, int64_t stride, const Weight* panel, int32_t depth,
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

// Each of eight bytes twice, as 16-bit numbers.
PAGEMILL_AVX2_INLINE __m256i twice(const uint8_t* bytes) {
  const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes));
  return _mm256_mullo_epi32(_mm256_cvtepu8_epi32(eight), _mm256_set1_epi32(0x10001));
}

PAGEMILL_AVX2 void widen_int8(const int8_t* source, int64_t num_pairs, const uint8_t* factors,
                              int16_t* out) {
  if (factors == nullptr) {
    for (int64_t i = 0; i < 2 * num_pairs; ++i) {
      const auto* narrow = reinterpret_cast<const __m128i*>(source) + i;
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out) + i,
                          _mm256_cvtepi8_epi16(_mm_loadu_si128(narrow)));
    }
    return;
  }
  const __m256i halves[2] = {twice(factors), twice(factors + kLanes)};
  for (int64_t p = 0; p < num_pairs; ++p) {
    PAGEMILL_UNROLL
    for (int half = 0; half < 2; ++half, source += 16, out += 16) {
      const __m256i wide =
          _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source)));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                          _mm256_mullo_epi16(wide, halves[half]));
    }
  }
}

PAGEMILL_AVX2 void widen_pairs(const uint16_t* source, int64_t num_pairs, float* out) {
  for (int64_t p = 0; p < num_pairs; ++p, source += 2 * kPanelColumns, out += 2 * kPanelColumns) {
    PAGEMILL_UNROLL
    for (int half = 0; half < 2; ++half) {
      const __m256i pairs = load_pairs(source + half * kPanelColumns);
      _mm256_storeu_ps(out + half * kLanes, first_of(pairs));
      _mm256_storeu_ps(out + kPanelColumns + half * kLanes, second_of(pairs));
    }
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
  float largest = highest_lane(lanes);
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

PAGEMILL_AVX2 void store(const float* sums, const float* bias, bool accumulate, float* out) {
  PAGEMILL_UNROLL
  for (int j = 0; j < kPanelColumns; j += kLanes) {
    __m256 value = _mm256_loadu_ps(sums + j);
    if (bias != nullptr) value = _mm256_add_ps(value, _mm256_loadu_ps(bias + j));
    if (accumulate) value = _mm256_add_ps(_mm256_loadu_ps(out + j), value);
    _mm256_storeu_ps(out + j, value);
  }
}

PAGEMILL_AVX2 void scale_sums(const int32_t* sums, const float* scales, const float* row_scales,
                              int32_t num_rows, bool accumulate, float* out, int64_t out_stride) {
  const __m256 columns[2] = {_mm256_loadu_ps(scales), _mm256_loadu_ps(scales + kLanes)};
  for (int32_t i = 0; i < num_rows; ++i, sums += kPanelColumns, out += out_stride) {
    const __m256 row = _mm256_set1_ps(row_scales == nullptr ? 1.0f : row_scales[i]);
    PAGEMILL_UNROLL
    for (int half = 0; half < 2; ++half) {
      const auto* source = reinterpret_cast<const __m256i*>(sums) + half;
      float* target = out + half * kLanes;
      const __m256 before = accumulate ? _mm256_loadu_ps(target) : _mm256_setzero_ps();
      const __m256 exact = _mm256_cvtepi32_ps(_mm256_loadu_si256(source));
      const __m256 factors = _mm256_mul_ps(columns[half], row);
      _mm256_storeu_ps(target, _mm256_fmadd_ps(exact, factors, before));
    }
  }
}

constexpr MatrixTileKernels kKernels{
    multiply<float>, multiply<uint16_t>, pair_product, widen_int8,
    widen_pairs,     quantize,           store,        scale_sums};

}  // namespace

const MatrixTileKernels* avx2_matrix_kernels() { return &kKernels; }

}  // namespace pagemill

#else

namespace pagemill {

const MatrixTileKernels* avx2_matrix_kernels() { return nullptr; }

}  // namespace pagemill

#endif
