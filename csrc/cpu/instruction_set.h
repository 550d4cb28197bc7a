// Which of the kernels' instruction sets is in use.
#pragma once

#include <string>
#include <vector>

namespace pagemill {

enum class InstructionSet { kPortable, kAvx2 };

// The names of the sets that this processor and build have, slowest first.
std::vector<std::string> instruction_sets();

// The set in use: the fastest there is, unless another was chosen.
InstructionSet instruction_set();
std::string instruction_set_name();

// Chooses a set by name for all later kernel calls; throws std::invalid_argument when it isn't
// there. For tests and comparisons: every set gives equal results up to rounding.
void use_instruction_set(const std::string& name);

}  // namespace pagemill
