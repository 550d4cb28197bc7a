#include "cpu/peak.h"

#include <chrono>
#include <stdexcept>
#include <vector>

#include "cpu/instruction_set.h"
#include "cpu/matrix_tile.h"
#include "cpu/packed_matrix.h"
#include "cpu/thread_pool.h"

#if defined(__x86_64__)
#include "cpu/amx.h"
#endif

namespace pagemill {
namespace {

enum class Arithmetic { kFloat32, kBfloat16, kInt16 };

// Runs `work` (which returns what it did) on each thread for the time, and adds up their rates.
template <typename Work>
double rate(double seconds, const Work& work) {
  using Clock = std::chrono::steady_clock;
  const auto pool = shared_pool();
  const int32_t threads = pool->num_threads();
  std::vector<double> rates(threads);
  pool->run(threads, [&](int32_t index, int32_t) {
    double done = 0.0;
    const auto start = Clock::now();
    double passed = 0.0;
    do {
      done += work(index);
      passed = std::chrono::duration<double>(Clock::now() - start).count();
    } while (passed < seconds);
    rates[index] = done / passed / 1e9;
  });
  double sum = 0.0;
  for (const double one : rates) sum += one;
  return sum;
}

#if defined(__x86_64__)

#define PAGEMILL_TWELVE(op) \
  op(0) op(1) op(2) op(3) op(4) op(5) op(6) op(7) op(8) op(9) op(10) op(11)
#define PAGEMILL_FMA(r) "vfmadd231ps %%ymm12, %%ymm13, %%ymm" #r "\n\t"
#define PAGEMILL_MADD(r) \
  "vpmaddwd %%ymm12, %%ymm13, %%ymm14\n\tvpaddd %%ymm14, %%ymm" #r ", %%ymm" #r "\n\t"
#define PAGEMILL_LOOP(op)                                                                        \
  __asm__ volatile("vzeroall\n\t"                                                                \
                   "1:\n\t" PAGEMILL_TWELVE(op) "dec %0\n\t"                                      \
                   "jnz 1b\n\t"                                                                  \
                   "vzeroupper"                                                                  \
                   : "+r"(left)                                                                  \
                   :                                                                             \
                   : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",       \
                     "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15")

constexpr int64_t kTimes = 20'000;

#define PAGEMILL_WIDE_FMA(r) "vfmadd231ps %%zmm12, %%zmm13, %%zmm" #r "\n\t"
#define PAGEMILL_WIDE_MADD(r) "vpdpwssd %%zmm12, %%zmm13, %%zmm" #r "\n\t"
#define PAGEMILL_WIDE_BF16(r) "vdpbf16ps %%zmm12, %%zmm13, %%zmm" #r "\n\t"

// Twelve sums at once, from registers to registers. Operations done.
double multiply_adds() {
  int64_t left = kTimes;
  PAGEMILL_LOOP(PAGEMILL_FMA);
  return 12.0 * 16 * kTimes;
}
double pair_products() {
  int64_t left = kTimes;
  PAGEMILL_LOOP(PAGEMILL_MADD);
  return 12.0 * 32 * kTimes;
}
double wide_multiply_adds() {
  int64_t left = kTimes;
  PAGEMILL_LOOP(PAGEMILL_WIDE_FMA);
  return 12.0 * 32 * kTimes;
}
double wide_pair_products() {
  int64_t left = kTimes;
  PAGEMILL_LOOP(PAGEMILL_WIDE_MADD);
  return 12.0 * 64 * kTimes;
}
double wide_bfloat16_products() {
  int64_t left = kTimes;
  PAGEMILL_LOOP(PAGEMILL_WIDE_BF16);
  return 12.0 * 64 * kTimes;
}

double tile_products() {
  constexpr int32_t kRounds = 10'000;
  const TileScope scope(TileShapes::full());
  tile_zero<2>();
  tile_zero<3>();
  for (int32_t i = 0; i < kRounds; ++i) {
    tile_product_bf16<0, 2, 3>();
    tile_product_bf16<1, 2, 3>();
  }
  return 2.0 * 2 * 16 * 16 * 32 * kRounds;
}

// What the set in use computes a kind of numbers with.
double registers(Arithmetic kind) {
  const InstructionSet set = instruction_set();
  const bool wide = set >= InstructionSet::kAvx512;
  switch (kind) {
    case Arithmetic::kInt16: return wide ? wide_pair_products() : pair_products();
    case Arithmetic::kBfloat16:
      if (set >= InstructionSet::kAmx) return tile_products();
      if (wide) return wide_bfloat16_products();
      [[fallthrough]];
    default: return wide ? wide_multiply_adds() : multiply_adds();
  }
}

#endif

// The portable kernels' own rate, on operands that stay in the first-level cache.
double portable_products(Arithmetic kind) {
  constexpr int32_t kDepth = 256;
  const MatrixTileKernels& kernels = *portable_matrix_kernels();
  thread_local std::vector<float> rows(kTileRows * kDepth), panel(kDepth * kPanelColumns);
  thread_local std::vector<int16_t> pairs(kTileRows * kDepth), whole_panel(kDepth * kPanelColumns);
  float sums[kTileRows * kPanelColumns];
  int32_t exact[kTileRows * kPanelColumns];
  if (kind == Arithmetic::kInt16) {
    kernels.int16(pairs.data(), kDepth, whole_panel.data(), 2 * kPanelColumns, kDepth / 2,
                  kTileRows, exact);
  } else {
    kernels.float32(rows.data(), kDepth, panel.data(), kDepth, kTileRows, sums, kPanelColumns);
  }
  return 2.0 * kTileRows * kDepth * kPanelColumns;
}

double arithmetic(Arithmetic kind, double seconds) {
#if defined(__x86_64__)
  if (instruction_set() >= InstructionSet::kAvx2) {
    return rate(seconds, [&](int32_t) { return registers(kind); });
  }
#endif
  return rate(seconds, [&](int32_t) { return portable_products(kind); });
}

double read(double seconds) {
  constexpr int64_t kWords = 32 << 20;  // of 8 bytes
  const int32_t threads = shared_pool()->num_threads();
  std::vector<std::vector<uint64_t>> arrays(threads);
  for (auto& array : arrays) array.assign(kWords, 1);
  return rate(seconds, [&](int32_t index) {
    const uint64_t* words = arrays[index].data();
    uint64_t sums[8] = {};
    for (int64_t i = 0; i < kWords; i += 8) {
      for (int j = 0; j < 8; ++j) sums[j] ^= words[i + j];
    }
    volatile uint64_t kept = 0;
    for (const uint64_t sum : sums) kept = kept ^ sum;
    return 8.0 * kWords;
  });
}

}  // namespace

double measure_peak(const std::string& what, double seconds) {
  if (what == "fp32") return arithmetic(Arithmetic::kFloat32, seconds);
  if (what == "bf16") return arithmetic(Arithmetic::kBfloat16, seconds);
  if (what == "int16") return arithmetic(Arithmetic::kInt16, seconds);
  if (what == "read") return read(seconds);
  throw std::invalid_argument("a peak is fp32, bf16, int16 or read, not '" + what + "'");
}

}  // namespace pagemill
