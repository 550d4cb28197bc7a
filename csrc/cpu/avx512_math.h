// Small functions on vectors of sixteen numbers.
#pragma once

#include "cpu/avx512.h"

#include <algorithm>

#include "cpu/avx2_math.h"

namespace pagemill {

// The lanes below `count`, which may be negative or above 16.
PAGEMILL_AVX512_INLINE __mmask16 first_lanes(int32_t count) {
  return static_cast<__mmask16>(count >= kWideLanes ? 0xFFFF : (1u << std::max(count, 0)) - 1);
}

// exp(x) for x <= 0, relative error below 2e-7, as in avx2_math.h.
PAGEMILL_AVX512_INLINE __m512 exp_nonpositive(__m512 x) {
  x = _mm512_max_ps(x, _mm512_set1_ps(-87.3f));
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.9875691500e-4f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
  p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, _mm512_set1_ps(1.0f)));
  return _mm512_scalef_ps(p, n);
}

// exp(x) for x <= 0, relative error below 1e-5: enough for what is rounded to 16 bits.
PAGEMILL_AVX512_INLINE __m512 rough_exp_nonpositive(__m512 x) {
  const __m512 t = _mm512_mul_ps(_mm512_max_ps(x, _mm512_set1_ps(-87.0f)),
                                 _mm512_set1_ps(1.44269504f));
  const __m512 n = _mm512_roundscale_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(t, n);  // -0.5 to 0.5
  __m512 p = _mm512_set1_ps(kExp2[4]);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(kExp2[3]));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(kExp2[2]));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(kExp2[1]));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(kExp2[0]));
  return _mm512_scalef_ps(p, n);
}

// x * sigmoid(x), sigmoid being 1 / (1 + e) for x >= 0 and e / (1 + e) below, with e = exp(-|x|).
PAGEMILL_AVX512_INLINE __m512 silu(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 e = exp_nonpositive(_mm512_or_ps(x, _mm512_set1_ps(-0.0f)));
  const __mmask16 positive = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GE_OQ);
  const __m512 numerator = _mm512_mask_blend_ps(positive, e, one);
  return _mm512_mul_ps(x, _mm512_div_ps(numerator, _mm512_add_ps(one, e)));
}

}  // namespace pagemill
