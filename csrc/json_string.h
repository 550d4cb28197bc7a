// The characters that stand raw in a JSON string, and states that loop on all of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "byte_dfa.h"

namespace pagemill {

// How many characters `text` has when it consists of whole UTF-8 characters that a string may hold
// raw: neither controls, DEL, quote nor backslash. -1 when it doesn't.
int32_t count_plain_characters(std::string_view text);

// What a plain character does in a state that all of them lead back to.
struct PlainLoop {
  const CounterOp* op;  // counts each character, or nullptr
};

// The loop of a state, or nothing when some plain character is refused, leads elsewhere, or is
// counted otherwise than the others.
std::optional<PlainLoop> find_plain_loop(const ByteDfa& dfa, int32_t state);

}  // namespace pagemill
