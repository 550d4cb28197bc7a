// What the products of rows in bfloat16 share: widening of bytes, and what is done to the sums.
#pragma once

#include <algorithm>

#include "cpu/avx512.h"
#include "cpu/tile_product.h"

namespace pagemill {

// The byte times its factor, rounded to bfloat16, for 16 columns and two inputs; factors come
// twice each. Exact in 16 bits, so that rounding is the only loss. What is handed on is 2^16 times
// as large: see kWideScale.
PAGEMILL_AVX512_INLINE __m512i widen_pairs(const int8_t* source, __m512i factors) {
  const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
  const __m512i wide = _mm512_mullo_epi16(_mm512_cvtepi8_epi16(narrow), factors);
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
  const __m512i half = _mm512_set1_epi32(0x8000);
  const __m512 even = _mm512_cvtepi32_ps(_mm512_slli_epi32(wide, 16));
  const __m512 odd = _mm512_cvtepi32_ps(_mm512_and_si512(wide, upper));
  const __m512i low = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(even), half), 16);
  const __m512i high = _mm512_add_epi32(_mm512_castps_si512(odd), half);
  return _mm512_ternarylogic_epi32(upper, high, low, 0xCA);  // upper ? high : low
}
constexpr float kWideScale = 1.0f / 65536.0f;

// Factors of 16 columns, for widen_pairs.
PAGEMILL_AVX512_INLINE __m512i pair_factors(const uint8_t* factors) {
  const __m128i narrow = _mm_loadu_si128(reinterpret_cast<const __m128i*>(factors));
  return _mm512_mullo_epi32(_mm512_cvtepu8_epi32(narrow), _mm512_set1_epi32(0x10001));
}

// Widens the tiles first..last of a panel of bytes: 512 numbers each, one after the other.
PAGEMILL_AVX512_INLINE void widen_tiles(const TileProduct& product, int32_t panel, int32_t first,
                                        int32_t last, uint16_t* out) {
  const int64_t elements = panel * product.panel_elements();
  const int8_t* source = product.int8 + elements + int64_t{first} * kRowTileElements;
  const uint8_t* factors =
      product.factors + (int64_t{panel} * product.depth_tiles() + first) * kWideLanes;
  for (int32_t tile = first; tile < last; ++tile, factors += kWideLanes) {
    const __m512i twice = pair_factors(factors);
    PAGEMILL_UNROLL
    for (int i = 0; i < 16; ++i, source += 32, out += 32) {
      _mm512_storeu_si512(out, widen_pairs(source, twice));
    }
  }
}

// What becomes of the sums of a panel's columns.
class TileEpilogue {
 public:
  PAGEMILL_AVX512_INLINE TileEpilogue(const TileProduct& product, int32_t panel)
      : out_(product.out + int64_t{panel} * kWideLanes),
        stride_(product.outputs),
        accumulate_(product.accumulate) {
    const int32_t columns = std::clamp(product.outputs - panel * kWideLanes, 0, kWideLanes);
    mask_ = static_cast<__mmask16>((1u << columns) - 1);
    scales_ = product.scales == nullptr
                  ? _mm512_set1_ps(1.0f)
                  : _mm512_mul_ps(_mm512_loadu_ps(product.scales + int64_t{panel} * kWideLanes),
                                  _mm512_set1_ps(kWideScale));
    bias_ = product.bias == nullptr
                ? _mm512_setzero_ps()
                : _mm512_maskz_loadu_ps(mask_, product.bias + int64_t{panel} * kWideLanes);
  }

  // Asks for the lines of 16 rows that will be written: on their way while a product is computed.
  PAGEMILL_AVX512_INLINE void prefetch(int32_t row) const {
    const char* line = reinterpret_cast<const char*>(out_ + row * stride_);
    for (int i = 0; i < kRowTileHeight; ++i, line += stride_ * sizeof(float)) {
      __builtin_prefetch(line, 1);
    }
  }

  PAGEMILL_AVX512_INLINE __m512 scaled(__m512 sums) const {
    return _mm512_fmadd_ps(sums, scales_, bias_);
  }

  PAGEMILL_AVX512_INLINE void store(int32_t row, __m512 sums) const {
    float* target = out_ + row * stride_;
    __m512 value = scaled(sums);
    if (accumulate_) value = _mm512_add_ps(_mm512_maskz_loadu_ps(mask_, target), value);
    _mm512_mask_storeu_ps(target, mask_, value);
  }

 private:
  float* out_;
  int64_t stride_;
  bool accumulate_;
  __mmask16 mask_;
  __m512 scales_, bias_;
};

}  // namespace pagemill
