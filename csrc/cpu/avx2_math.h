// Small functions on vectors of eight numbers. Only for sources that are built for x86-64.
#pragma once

#include <immintrin.h>

#include "cpu/avx2.h"

namespace pagemill {

// 2^f for f in -0.5 to 0.5: coefficients of f^0 to f^4, fitted for the least relative error.
constexpr float kExp2[5] = {0.999999197f, 0.693121952f, 0.240249591f, 0.0559171211f, 0.00956140802f};

// exp(x) for x <= 0, relative error below 2e-7: 2^n times a polynomial in the remainder
// (coefficients of Cephes' expf).
PAGEMILL_AVX2_INLINE __m256 exp_nonpositive(__m256 x) {
  x = _mm256_max_ps(x, _mm256_set1_ps(-87.3f));
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
  __m256 p = _mm256_set1_ps(1.9875691500e-4f);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
  p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), _mm256_add_ps(r, _mm256_set1_ps(1.0f)));
  const __m256i exponent =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(p, _mm256_castsi256_ps(exponent));
}

// exp(x) for x <= 0, relative error below 1e-5: enough for what is rounded to 16 bits. 2^n times a
// polynomial in the fraction of x / ln 2, least error in its largest place.
PAGEMILL_AVX2_INLINE __m256 rough_exp_nonpositive(__m256 x) {
  const __m256 t = _mm256_mul_ps(_mm256_max_ps(x, _mm256_set1_ps(-87.0f)),
                                 _mm256_set1_ps(1.44269504f));
  const __m256 n = _mm256_round_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256 f = _mm256_sub_ps(t, n);  // -0.5 to 0.5
  __m256 p = _mm256_set1_ps(kExp2[4]);
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(kExp2[3]));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(kExp2[2]));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(kExp2[1]));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(kExp2[0]));
  const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
}

PAGEMILL_AVX2_INLINE float highest_lane(__m256 x) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

PAGEMILL_AVX2_INLINE float sum_of_lanes(__m256 x) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

}  // namespace pagemill
