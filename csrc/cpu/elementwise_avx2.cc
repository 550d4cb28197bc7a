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

// Sums and differences of neighbours at a distance of 1, 2 and 4, within one vector.
PAGEMILL_AVX2_INLINE __m256 within_lanes(__m256 x) {
  const __m256 odd = _mm256_setr_ps(0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f);
  x = _mm256_add_ps(_mm256_permute_ps(x, 0xB1), _mm256_xor_ps(x, odd));
  const __m256 second = _mm256_setr_ps(0.0f, 0.0f, -0.0f, -0.0f, 0.0f, 0.0f, -0.0f, -0.0f);
  x = _mm256_add_ps(_mm256_permute_ps(x, 0x4E), _mm256_xor_ps(x, second));
  const __m256 high = _mm256_setr_ps(0.0f, 0.0f, 0.0f, 0.0f, -0.0f, -0.0f, -0.0f, -0.0f);
  return _mm256_add_ps(_mm256_permute2f128_ps(x, x, 1), _mm256_xor_ps(x, high));
}

PAGEMILL_AVX2 void hadamard(float* head, int32_t size) {
  const int32_t run = size & -size;
  if (run < kLanes) return portable_elementwise_kernels()->hadamard(head, size);
  const __m256 scale = _mm256_set1_ps(1.0f / std::sqrt(static_cast<float>(run)));
  for (int32_t i = 0; i < size; i += kLanes) {
    _mm256_storeu_ps(head + i, _mm256_mul_ps(within_lanes(_mm256_loadu_ps(head + i)), scale));
  }
  for (int32_t half = kLanes; half < run; half *= 2) {
    for (int32_t first = 0; first < size; first += 2 * half) {
      for (int32_t i = first; i < first + half; i += kLanes) {
        const __m256 a = _mm256_loadu_ps(head + i), b = _mm256_loadu_ps(head + half + i);
        _mm256_storeu_ps(head + i, _mm256_add_ps(a, b));
        _mm256_storeu_ps(head + half + i, _mm256_sub_ps(a, b));
      }
    }
  }
}

constexpr ElementwiseKernels kKernels{rms_norm, silu_mul, rotate, hadamard};

}  // namespace

const ElementwiseKernels* avx2_elementwise_kernels() { return &kKernels; }

}  // namespace pagemill

#else

namespace pagemill {

const ElementwiseKernels* avx2_elementwise_kernels() { return nullptr; }

}  // namespace pagemill

#endif
