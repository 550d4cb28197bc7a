// What functions for AVX2 and FMA carry, so that the rest of the build stays for any x86-64.
#pragma once

#include <cstdint>

#define PAGEMILL_AVX2 __attribute__((target("avx2,fma")))
#define PAGEMILL_AVX2_INLINE __attribute__((target("avx2,fma"), always_inline)) inline

// Before a loop over an array of vectors. Unrolled early, the array lives in registers; else the
// compiler keeps it in memory, and the loop takes three times as long.
#if defined(__clang__)
#define PAGEMILL_UNROLL _Pragma("unroll")
#else
#define PAGEMILL_UNROLL _Pragma("GCC unroll 16")
#endif

namespace pagemill {

constexpr int32_t kLanes = 8;  // float32 numbers of a vector

}  // namespace pagemill
