// The product of a few rows of 16-bit numbers and a panel of 16 columns, exact in 32 bits.
#pragma once

#include <cstdint>

namespace pagemill {

// sums[i][j] = sum over p < num_pairs of rows[i][2p] * panel[p][j][0] + rows[i][2p+1] *
// panel[p][j][1], for j < 16 and i < kRows; sums is [kRows][16]. Rows are row_stride, pairs of the
// panel panel_stride numbers apart.
//
// Written in assembly: given intrinsics, compilers keep some of the twelve sums in memory, and the
// product takes 1.7 times as long. vpmaddwd runs at twice the rate of a multiply-add in float32.
#define PAGEMILL_ROW(address, low, high)            \
  "vpbroadcastd " address ", %%ymm14\n\t"           \
  "vpmaddwd %%ymm12, %%ymm14, %%ymm15\n\t"          \
  "vpaddd %%ymm15, %%ymm" low ", %%ymm" low "\n\t"  \
  "vpmaddwd %%ymm13, %%ymm14, %%ymm14\n\t"          \
  "vpaddd %%ymm14, %%ymm" high ", %%ymm" high "\n\t"
#define PAGEMILL_ROWS_1 PAGEMILL_ROW("(%[a])", "0", "1")
#define PAGEMILL_ROWS_2 PAGEMILL_ROWS_1 PAGEMILL_ROW("(%[a],%[s])", "2", "3")
#define PAGEMILL_ROWS_3 PAGEMILL_ROWS_2 PAGEMILL_ROW("(%[a],%[s],2)", "4", "5")
#define PAGEMILL_ROWS_4 PAGEMILL_ROWS_3 PAGEMILL_ROW("(%[b])", "6", "7")
#define PAGEMILL_ROWS_5 PAGEMILL_ROWS_4 PAGEMILL_ROW("(%[b],%[s])", "8", "9")
#define PAGEMILL_ROWS_6 PAGEMILL_ROWS_5 PAGEMILL_ROW("(%[b],%[s],2)", "10", "11")

#define PAGEMILL_CLEAR(r) "vpxor %%xmm" #r ", %%xmm" #r ", %%xmm" #r "\n\t"
#define PAGEMILL_SAVE(r, offset) "vmovdqu %%ymm" #r ", " #offset "(%[out])\n\t"

#define PAGEMILL_PAIR_PRODUCT(rows_of_step)                                                     \
  __asm__ volatile(                                                                             \
      PAGEMILL_CLEAR(0) PAGEMILL_CLEAR(1) PAGEMILL_CLEAR(2) PAGEMILL_CLEAR(3) PAGEMILL_CLEAR(4)  \
      PAGEMILL_CLEAR(5) PAGEMILL_CLEAR(6) PAGEMILL_CLEAR(7) PAGEMILL_CLEAR(8) PAGEMILL_CLEAR(9)  \
      PAGEMILL_CLEAR(10) PAGEMILL_CLEAR(11)                                                     \
      ".p2align 4\n\t"                                                                          \
      "1:\n\t"                                                                                  \
      "vmovdqu (%[w]), %%ymm12\n\t"                                                             \
      "vmovdqu 32(%[w]), %%ymm13\n\t" rows_of_step                                              \
      "add %[step], %[w]\n\t"                                                                   \
      "add $4, %[a]\n\t"                                                                        \
      "add $4, %[b]\n\t"                                                                        \
      "dec %[n]\n\t"                                                                            \
      "jnz 1b\n\t"                                                                              \
      PAGEMILL_SAVE(0, 0) PAGEMILL_SAVE(1, 32)                                                  \
      "cmp $2, %[rows]\n\t"                                                                     \
      "jl 2f\n\t"                                                                               \
      PAGEMILL_SAVE(2, 64) PAGEMILL_SAVE(3, 96)                                                 \
      "cmp $3, %[rows]\n\t"                                                                     \
      "jl 2f\n\t"                                                                               \
      PAGEMILL_SAVE(4, 128) PAGEMILL_SAVE(5, 160)                                               \
      "cmp $4, %[rows]\n\t"                                                                     \
      "jl 2f\n\t"                                                                               \
      PAGEMILL_SAVE(6, 192) PAGEMILL_SAVE(7, 224)                                               \
      "cmp $5, %[rows]\n\t"                                                                     \
      "jl 2f\n\t"                                                                               \
      PAGEMILL_SAVE(8, 256) PAGEMILL_SAVE(9, 288)                                               \
      "cmp $6, %[rows]\n\t"                                                                     \
      "jl 2f\n\t"                                                                               \
      PAGEMILL_SAVE(10, 320) PAGEMILL_SAVE(11, 352)                                             \
      "2:\n\t"                                                                                  \
      "vzeroupper"                                                                              \
      : [a] "+r"(a), [b] "+r"(b), [w] "+r"(w), [n] "+r"(n)                                      \
      : [s] "r"(2 * row_stride), [step] "r"(2 * panel_stride), [out] "r"(sums),                 \
        [rows] "r"(num_rows)                                                                    \
      : "cc", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",  \
        "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15")

// num_rows is 1 to 6, num_pairs at least 1.
inline void pair_product(const int16_t* rows, int64_t row_stride, const int16_t* panel,
                         int64_t panel_stride, int64_t num_pairs, int32_t num_rows,
                         int32_t* sums) {
  const int16_t *a = rows, *b = rows + 3 * row_stride, *w = panel;
  int64_t n = num_pairs;
  switch (num_rows) {
    case 6: PAGEMILL_PAIR_PRODUCT(PAGEMILL_ROWS_6); break;
    case 5: PAGEMILL_PAIR_PRODUCT(PAGEMILL_ROWS_5); break;
    case 4: PAGEMILL_PAIR_PRODUCT(PAGEMILL_ROWS_4); break;
    case 3: PAGEMILL_PAIR_PRODUCT(PAGEMILL_ROWS_3); break;
    case 2: PAGEMILL_PAIR_PRODUCT(PAGEMILL_ROWS_2); break;
    default: PAGEMILL_PAIR_PRODUCT(PAGEMILL_ROWS_1); break;
  }
}

#undef PAGEMILL_PAIR_PRODUCT
#undef PAGEMILL_SAVE
#undef PAGEMILL_CLEAR
#undef PAGEMILL_ROWS_6
#undef PAGEMILL_ROWS_5
#undef PAGEMILL_ROWS_4
#undef PAGEMILL_ROWS_3
#undef PAGEMILL_ROWS_2
#undef PAGEMILL_ROWS_1
#undef PAGEMILL_ROW

}  // namespace pagemill
