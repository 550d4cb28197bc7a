// What stands between the matrix products of a decoder layer, each in one pass over its rows.
#pragma once

#include <cstdint>

namespace pagemill {

// out[i] = x[i] / sqrt(mean(x[i]^2) + eps) * weight, for rows of `size` numbers.
void rms_norm(const float* x, const float* weight, float eps, int32_t num_rows, int32_t size,
              float* out);

// out[i][j] = silu(gate_up[i][j]) * gate_up[i][size + j]; gate_up is [num_rows][2 * size].
void silu_mul(const float* gate_up, int32_t num_rows, int32_t size, float* out);

// Turns the first `num_heads` heads of each row in place: pairs (x[d], x[d + head_dim / 2]) by the
// angle whose cosine and sine are cos[row][d], sin[row][d]. Rows are `stride` numbers apart.
void rotate(float* rows, int64_t stride, const float* cos, const float* sin, int32_t num_rows,
            int32_t num_heads, int32_t head_dim);

// The fast Walsh-Hadamard transform of heads in place: of each run of 2^k numbers, 2^k being the
// largest power of two that divides head_dim. Orthogonal, and its own inverse.
void hadamard(float* heads, int32_t num_heads, int32_t head_dim);

}  // namespace pagemill
