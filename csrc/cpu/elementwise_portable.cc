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

constexpr ElementwiseKernels kKernels{rms_norm, silu_mul, rotate};

}  // namespace

const ElementwiseKernels* portable_elementwise_kernels() { return &kKernels; }

}  // namespace pagemill
