#include "cpu/elementwise.h"

#include <stdexcept>

#include "cpu/elementwise_kernels.h"
#include "cpu/instruction_set.h"
#include "cpu/row_tasks.h"

namespace pagemill {
namespace {

void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

}  // namespace

const ElementwiseKernels& elementwise_kernels() {
  if (instruction_set() >= InstructionSet::kAvx512) return *avx512_elementwise_kernels();
  if (instruction_set() >= InstructionSet::kAvx2) return *avx2_elementwise_kernels();
  return *portable_elementwise_kernels();
}

void rms_norm(const float* x, const float* weight, float eps, int32_t num_rows, int32_t size,
              float* out) {
  require(num_rows >= 0 && size >= 1, "rms_norm: wrong size");
  if (num_rows == 0) return;
  require(x != nullptr && weight != nullptr && out != nullptr, "rms_norm: null pointer");
  const ElementwiseKernels& k = elementwise_kernels();
  for_rows(num_rows, size, [&](int32_t row) {
    k.rms_norm(x + int64_t{row} * size, weight, eps, size, out + int64_t{row} * size);
  });
}

void silu_mul(const float* gate_up, int32_t num_rows, int32_t size, float* out) {
  require(num_rows >= 0 && size >= 1, "silu_mul: wrong size");
  if (num_rows == 0) return;
  require(gate_up != nullptr && out != nullptr, "silu_mul: null pointer");
  const ElementwiseKernels& k = elementwise_kernels();
  for_rows(num_rows, size, [&](int32_t row) {
    const float* gate = gate_up + int64_t{row} * 2 * size;
    k.silu_mul(gate, gate + size, size, out + int64_t{row} * size);
  });
}

void rotate(float* rows, int64_t stride, const float* cos, const float* sin, int32_t num_rows,
            int32_t num_heads, int32_t head_dim) {
  require(num_rows >= 0 && num_heads >= 1 && head_dim >= 2 && head_dim % 2 == 0 &&
              stride >= int64_t{num_heads} * head_dim,
          "rotate: wrong size");
  if (num_rows == 0) return;
  require(rows != nullptr && cos != nullptr && sin != nullptr, "rotate: null pointer");
  const ElementwiseKernels& k = elementwise_kernels();
  const int32_t half = head_dim / 2;
  for_rows(num_rows, int64_t{num_heads} * head_dim, [&](int32_t row) {
    for (int32_t head = 0; head < num_heads; ++head) {
      k.rotate(rows + row * stride + int64_t{head} * head_dim, cos + int64_t{row} * half,
               sin + int64_t{row} * half, half);
    }
  });
}

void hadamard(float* heads, int32_t num_heads, int32_t head_dim) {
  require(num_heads >= 0 && head_dim >= 1, "hadamard: wrong size");
  if (num_heads == 0) return;
  require(heads != nullptr, "hadamard: null pointer");
  const ElementwiseKernels& k = elementwise_kernels();
  for_rows(num_heads, head_dim, [&](int32_t head) {
    k.hadamard(heads + int64_t{head} * head_dim, head_dim);
  });
}

}  // namespace pagemill
