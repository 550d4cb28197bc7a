#include <cmath>

#include "cpu/elementwise_kernels.h"

namespace pagemill {
namespace {

void rms_norm(const float* x, const float* weight, float eps, int32_t size, float* out) {
  double squares = 0.0;
  for (int32_t i = 0; i < size; ++i) squares += static_cast<double>(x[i]) * x[i];
  const float inverse = 1.0f / std::sqrt(static_cast<float>(squares / size) + eps);
  for (int32_t i = 0; i < size; ++i) out[i] = x[i] * inverse * weight[i];
}

void silu_mul(const float* gate, const float* up, int32_t size, float* out) {
  for (int32_t i = 0; i < size; ++i) out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

void rotate(float* head, const float* cos, const float* sin, int32_t half) {
  for (int32_t d = 0; d < half; ++d) {
    const float low = head[d], high = head[half + d];
    head[d] = low * cos[d] - high * sin[d];
    head[half + d] = high * cos[d] + low * sin[d];
  }
}

void hadamard(float* head, int32_t size) {
  const int32_t run = size & -size;
  for (int32_t half = 1; half < run; half *= 2) {
    for (int32_t first = 0; first < size; first += 2 * half) {
      for (int32_t i = first; i < first + half; ++i) {
        const float a = head[i], b = head[i + half];
        head[i] = a + b;
        head[i + half] = a - b;
      }
    }
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(run));
  for (int32_t i = 0; i < size; ++i) head[i] *= scale;
}

constexpr ElementwiseKernels kKernels{rms_norm, silu_mul, rotate, hadamard};

}  // namespace

const ElementwiseKernels* portable_elementwise_kernels() { return &kKernels; }

}  // namespace pagemill
