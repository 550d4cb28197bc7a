// Which tokens at the end of a known text are settled whatever follows it.
#pragma once

#include <cstdint>
#include <span>

#include "byte_dfa.h"
#include "row_state.h"
#include "token_trie.h"

namespace pagemill {

// How many of `tokens` stand before the first of the last few in whose place a longer legal token
// could stand, one that reaches beyond the end. states[i] is the state before tokens[i], with one
// more for the end.
size_t count_settled(const ByteDfa& dfa, const TokenTrie& trie, std::span<const RowState> states,
                     std::span<const int32_t> tokens);

}  // namespace pagemill
