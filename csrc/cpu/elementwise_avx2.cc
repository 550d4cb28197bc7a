// AVX2 and FMA, chosen at run time (cpu/avx2.h).
#include "cpu/elementwise_kernels.h"

#if defined(__x86_64__)

#include <cmath>

#include "cpu/avx2_math.h"

namespace pagemill {
namespace {

PAGEMILL_AVX2 void rms_norm(const float* x, const float* weight, float eps, int32_t size,
                            float* out) {
  __m256 lanes = _mm256_setzero_ps();
  int32_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const __m256 values = _mm256_loadu_ps(x + i);
    lanes = _mm256_fmadd_ps(values, values, lanes);
  }
  float squares = sum_of_lanes(lanes);
  for (; i < size; ++i) squares += x[i] * x[i];
  const float inverse = 1.0f / std::sqrt(squares / static_cast<float>(size) + eps);
  const __m256 factor = _mm256_set1_ps(inverse);
  for (i = 0; i + kLanes <= size; i += kLanes) {
    const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x + i), factor);
    _mm256_storeu_ps(out + i, _mm256_mul_ps(scaled, _mm256_loadu_ps(weight + i)));
  }
  for (; i < size; ++i) out[i] = x[i] * inverse * weight[i];
}

PAGEMILL_AVX2 void silu_mul(const float* gate, const float* up, int32_t size, float* out) {
  const __m256 one = _mm256_set1_ps(1.0f), zero = _mm256_setzero_ps();
  const __m256 sign = _mm256_set1_ps(-0.0f);
  int32_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const __m256 x = _mm256_loadu_ps(gate + i);
    // sigmoid(x) is 1 / (1 + e) for x >= 0 and e / (1 + e) below, with e = exp(-|x|).
    const __m256 e = exp_nonpositive(_mm256_or_ps(x, sign));
    const __m256 numerator = _mm256_blendv_ps(e, one, _mm256_cmp_ps(x, zero, _CMP_GE_OQ));
    const __m256 sigmoid = _mm256_div_ps(numerator, _mm256_add_ps(one, e));
    _mm256_storeu_ps(out + i,
                     _mm256_mul_ps(_mm256_mul_ps(x, sigmoid), _mm256_loadu_ps(up + i)));
  }
  for (; i < size; ++i) out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

PAGEMILL_AVX2 void rotate(float* head, const float* cos, const float* sin, int32_t half) {
  int32_t d = 0;
  for (; d + kLanes <= half; d += kLanes) {
    const __m256 low = _mm256_loadu_ps(head + d), high = _mm256_loadu_ps(head + half + d);
    const __m256 c = _mm256_loadu_ps(cos + d), s = _mm256_loadu_ps(sin + d);
    _mm256_storeu_ps(head + d, _mm256_fmsub_ps(low, c, _mm256_mul_ps(high, s)));
    _mm256_storeu_ps(head + half + d, _mm256_fmadd_ps(high, c, _mm256_mul_ps(low, s)));
  }
  for (; d < half; ++d) {
    const float low = head[d], high = head[half + d];
    head[d] = low * cos[d] - high * sin[d];
    head[half + d] = high * cos[d] + low * sin[d];
  }
}

constexpr ElementwiseKernels kKernels{rms_norm, silu_mul, rotate};

}  // namespace

const ElementwiseKernels* avx2_elementwise_kernels() { return &kKernels; }

}  // namespace pagemill

#else

namespace pagemill {

const ElementwiseKernels* avx2_elementwise_kernels() { return nullptr; }

}  // namespace pagemill

#endif
