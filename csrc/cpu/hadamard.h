// The fast Walsh-Hadamard transform of a head.
#pragma once

#include <cmath>
#include <cstdint>

namespace pagemill {

// Turns each run of 2^k numbers of a head in place, 2^k being the largest power of two that divides
// `size`; orthogonal, and its own inverse.
inline void hadamard(float* head, int32_t size) {
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

}  // namespace pagemill
