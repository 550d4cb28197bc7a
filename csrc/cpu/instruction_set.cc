#include "cpu/instruction_set.h"

#include <atomic>
#include <cstdint>
#include <stdexcept>

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace pagemill {
namespace {

constexpr const char* kNames[] = {"portable", "avx2", "avx512", "amx"};

#if defined(__x86_64__)

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
}

// Linux lets a process use the tiles' registers when it has asked for them; threads inherit it.
bool has_amx() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // asm/prctl.h, asm/fpu/types.h
  uint32_t eax = 7, ebx = 0, ecx = 0, edx = 0;
  __asm__("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
  constexpr uint32_t kBf16 = 1u << 22, kTile = 1u << 24, kInt8 = 1u << 25;
  constexpr uint32_t kAll = kBf16 | kTile | kInt8;
  return has_avx512() && (edx & kAll) == kAll &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

InstructionSet fastest() {
  static const InstructionSet set = has_amx()      ? InstructionSet::kAmx
                                    : has_avx512() ? InstructionSet::kAvx512
                                    : has_avx2()   ? InstructionSet::kAvx2
                                                   : InstructionSet::kPortable;
  return set;
}

#else

InstructionSet fastest() { return InstructionSet::kPortable; }

#endif

std::atomic<InstructionSet>& chosen() {
  static std::atomic<InstructionSet> value{fastest()};
  return value;
}

}  // namespace

std::vector<std::string> instruction_sets() {
  return {kNames, kNames + static_cast<int>(fastest()) + 1};
}

InstructionSet instruction_set() { return chosen().load(std::memory_order_relaxed); }

std::string instruction_set_name() { return kNames[static_cast<int>(instruction_set())]; }

void use_instruction_set(const std::string& name) {
  for (int i = 0; i <= static_cast<int>(fastest()); ++i) {
    if (name == kNames[i]) return chosen().store(static_cast<InstructionSet>(i));
  }
  throw std::invalid_argument("no instruction set '" + name + "' on this processor");
}

}  // namespace pagemill
