// One row's work of the functions in elementwise.h, in several instruction sets.
#pragma once

#include <cstdint>

namespace pagemill {

struct ElementwiseKernels {
  void (*rms_norm)(const float* x, const float* weight, float eps, int32_t size, float* out);
  void (*silu_mul)(const float* gate, const float* up, int32_t size, float* out);
  void (*rotate)(float* head, const float* cos, const float* sin, int32_t half);
  // The fast Walsh-Hadamard transform of each run of 2^k numbers, in place, 2^k being the largest
  // power of two that divides `size`. Orthogonal, and its own inverse.
  void (*hadamard)(float* head, int32_t size);
};

// The kernels of the instruction set in use.
const ElementwiseKernels& elementwise_kernels();

const ElementwiseKernels* portable_elementwise_kernels();
// nullptr where the build hasn't got them.
const ElementwiseKernels* avx2_elementwise_kernels();
const ElementwiseKernels* avx512_elementwise_kernels();

}  // namespace pagemill
