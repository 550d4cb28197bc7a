// Which of the kernels' instruction sets is in use.
#pragma once

#include <string>
#include <vector>

namespace pagemill {

// Slowest first; each includes those before it. kAvx512: F, BW, DQ, VL, VNNI and BF16. kAmx: tiles
// of bfloat16 and of int8.
enum class InstructionSet { kPortable, kAvx2, kAvx512, kAmx };

// The names of the sets that this processor, its operating system and the build have, slowest
// first.
std::vector<std::string> instruction_sets();

// The set in use: the fastest there is, unless another was chosen. A kernel that isn't written for
// it takes the next slower one's.
InstructionSet instruction_set();
std::string instruction_set_name();

// Chooses a set by name for all later kernel calls; throws std::invalid_argument when it isn't
// there. For tests and comparisons: every set gives equal results up to rounding.
void use_instruction_set(const std::string& name);

}  // namespace pagemill
