// What functions for AVX-512 carry, so that the rest of the build stays for any x86-64. Only for
// sources that are built for x86-64.
#pragma once

// Without this GCC 12 takes the don't-care operands within its own header for mistakes. So this
// header comes before others that include immintrin.h.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include "cpu/avx2.h"

#define PAGEMILL_AVX512_TARGET \
  "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16"
#define PAGEMILL_AVX512 __attribute__((target(PAGEMILL_AVX512_TARGET)))
#define PAGEMILL_AVX512_INLINE \
  __attribute__((target(PAGEMILL_AVX512_TARGET), always_inline)) inline

namespace pagemill {

constexpr int32_t kWideLanes = 16;  // float32 numbers of a vector of 512 bits

}  // namespace pagemill
