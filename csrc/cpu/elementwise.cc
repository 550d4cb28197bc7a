#include "cpu/elementwise.h"

#include <algorithm>
#include <stdexcept>

#include "cpu/elementwise_kernels.h"
#include "cpu/instruction_set.h"
#include "cpu/thread_pool.h"

namespace pagemill {
namespace {

// Numbers below which a task isn't worth another thread.
constexpr int64_t kNumbersPerTask = 16384;

const ElementwiseKernels& kernels() {
  if (instruction_set() == InstructionSet::kAvx2) return *avx2_elementwise_kernels();
  return *portable_elementwise_kernels();
}

void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

// Calls `work(row)` for each row, many rows to a task.
template <typename Work>
void for_rows(int32_t num_rows, int64_t row_size, const Work& work) {
  const auto per_task =
      static_cast<int32_t>(std::clamp<int64_t>(kNumbersPerTask / row_size, 1, 1 << 20));
  const int32_t tasks = (num_rows + per_task - 1) / per_task;
  const auto task = [&](int32_t index, int32_t) {
    const int32_t last = std::min(num_rows, (index + 1) * per_task);
    for (int32_t row = index * per_task; row < last; ++row) work(row);
  };
  if (tasks == 1) {
    task(0, 0);
  } else {
    shared_pool()->run(tasks, task);
  }
}

}  // namespace

void rms_norm(const float* x, const float* weight, float eps, int32_t num_rows, int32_t size,
              float* out) {
  require(num_rows >= 0 && size >= 1, "rms_norm: wrong size");
  if (num_rows == 0) return;
  require(x != nullptr && weight != nullptr && out != nullptr, "rms_norm: null pointer");
  const ElementwiseKernels& k = kernels();
  for_rows(num_rows, size, [&](int32_t row) {
    k.rms_norm(x + int64_t{row} * size, weight, eps, size, out + int64_t{row} * size);
  });
}

void silu_mul(const float* gate_up, int32_t num_rows, int32_t size, float* out) {
  require(num_rows >= 0 && size >= 1, "silu_mul: wrong size");
  if (num_rows == 0) return;
  require(gate_up != nullptr && out != nullptr, "silu_mul: null pointer");
  const ElementwiseKernels& k = kernels();
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
  const ElementwiseKernels& k = kernels();
  const int32_t half = head_dim / 2;
  for_rows(num_rows, int64_t{num_heads} * head_dim, [&](int32_t row) {
    for (int32_t head = 0; head < num_heads; ++head) {
      k.rotate(rows + row * stride + int64_t{head} * head_dim, cos + int64_t{row} * half,
               sin + int64_t{row} * half, half);
    }
  });
}

}  // namespace pagemill
