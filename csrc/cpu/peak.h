// What this processor's arithmetic and memory can do at most, measured.
#pragma once

#include <cstdint>
#include <string>

namespace pagemill {

// Billions a second over all threads of the shared pool, for about `seconds`:
//   "fp32"  multiply-adds in float32, two operations each
//   "bf16"  the same of bfloat16 added in float32: tiles, or pairs; where there are none, "fp32"
//   "int16" products of 16-bit numbers added in 32 bits, two operations each
//   "read"  bytes read from an array of 256 MiB a thread
// From AVX2 on those of arithmetic go from registers to registers; the portable set gives its own
// kernels' rate on data that stays in the first-level cache. Throws std::invalid_argument for
// another name.
double measure_peak(const std::string& what, double seconds);

}  // namespace pagemill
