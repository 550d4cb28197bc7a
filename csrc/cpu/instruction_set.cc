#include "cpu/instruction_set.h"

#include <atomic>
#include <stdexcept>

namespace pagemill {
namespace {

constexpr const char* kNames[] = {"portable", "avx2"};

bool has_avx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return false;
#endif
}

std::atomic<InstructionSet>& chosen() {
  static std::atomic<InstructionSet> value{has_avx2() ? InstructionSet::kAvx2
                                                      : InstructionSet::kPortable};
  return value;
}

}  // namespace

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names{kNames[0]};
  if (has_avx2()) names.emplace_back(kNames[1]);
  return names;
}

InstructionSet instruction_set() { return chosen().load(std::memory_order_relaxed); }

std::string instruction_set_name() { return kNames[static_cast<int>(instruction_set())]; }

void use_instruction_set(const std::string& name) {
  if (name == kNames[0]) {
    chosen().store(InstructionSet::kPortable);
  } else if (name == kNames[1] && has_avx2()) {
    chosen().store(InstructionSet::kAvx2);
  } else {
    throw std::invalid_argument("no instruction set '" + name + "' on this processor");
  }
}

}  // namespace pagemill
