// Numbers that name the languages of an automaton's states.
#pragma once

#include <cstdint>
#include <vector>

#include "automaton.h"

namespace pagemill {

// For each state that the start reaches, a number that depends on nothing but the state's language
// over letters (byte, operation); others have 0. Different languages have different numbers but by
// a rare chance, or where each word of the one has the letters of one of the other in another
// order. Empty if finding them takes too long: time grows with the square of how many loops cross
// each other.
std::vector<uint64_t> fingerprints(const Automaton& automaton);

}  // namespace pagemill
