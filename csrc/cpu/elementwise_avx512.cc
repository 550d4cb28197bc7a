// AVX-512, chosen at run time (cpu/avx512.h). What isn't here is AVX2's.
#include "cpu/elementwise_kernels.h"

#if defined(__x86_64__)

#include <cmath>

#include "cpu/avx512_math.h"

namespace pagemill {
namespace {

// The lanes of a vector that starts at `first` and that are there.
PAGEMILL_AVX512_INLINE __mmask16 lanes_from(int32_t first, int32_t size) {
  return size - first >= kWideLanes ? __mmask16{0xFFFF}
                                    : static_cast<__mmask16>((1u << (size - first)) - 1);
}

PAGEMILL_AVX512 void rms_norm(const float* x, const float* weight, float eps, int32_t size,
                              float* out) {
  __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  for (int32_t i = 0; i < size; i += kWideLanes) {
    const __m512 values = _mm512_maskz_loadu_ps(lanes_from(i, size), x + i);
    __m512& sum = sums[i / kWideLanes % 2];
    sum = _mm512_fmadd_ps(values, values, sum);
  }
  const float squares = _mm512_reduce_add_ps(_mm512_add_ps(sums[0], sums[1]));
  const __m512 factor =
      _mm512_set1_ps(1.0f / std::sqrt(squares / static_cast<float>(size) + eps));
  for (int32_t i = 0; i < size; i += kWideLanes) {
    const __mmask16 lanes = lanes_from(i, size);
    const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, x + i), factor);
    _mm512_mask_storeu_ps(out + i, lanes,
                          _mm512_mul_ps(scaled, _mm512_maskz_loadu_ps(lanes, weight + i)));
  }
}

PAGEMILL_AVX512 void silu_mul(const float* gate, const float* up, int32_t size, float* out) {
  for (int32_t i = 0; i < size; i += kWideLanes) {
    const __mmask16 lanes = lanes_from(i, size);
    const __m512 factor = silu(_mm512_maskz_loadu_ps(lanes, gate + i));
    _mm512_mask_storeu_ps(out + i, lanes,
                          _mm512_mul_ps(factor, _mm512_maskz_loadu_ps(lanes, up + i)));
  }
}

PAGEMILL_AVX512 void rotate(float* head, const float* cos, const float* sin, int32_t half) {
  for (int32_t d = 0; d < half; d += kWideLanes) {
    const __mmask16 lanes = lanes_from(d, half);
    const __m512 low = _mm512_maskz_loadu_ps(lanes, head + d);
    const __m512 high = _mm512_maskz_loadu_ps(lanes, head + half + d);
    const __m512 c = _mm512_maskz_loadu_ps(lanes, cos + d);
    const __m512 s = _mm512_maskz_loadu_ps(lanes, sin + d);
    _mm512_mask_storeu_ps(head + d, lanes, _mm512_fmsub_ps(low, c, _mm512_mul_ps(high, s)));
    _mm512_mask_storeu_ps(head + half + d, lanes,
                          _mm512_fmadd_ps(high, c, _mm512_mul_ps(low, s)));
  }
}

}  // namespace

const ElementwiseKernels* avx512_elementwise_kernels() {
  static const ElementwiseKernels kernels{rms_norm, silu_mul, rotate,
                                          avx2_elementwise_kernels()->hadamard};
  return &kernels;
}

}  // namespace pagemill

#else

namespace pagemill {

const ElementwiseKernels* avx512_elementwise_kernels() { return nullptr; }

}  // namespace pagemill

#endif
