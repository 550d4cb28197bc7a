// Where the tokens of one step stand: the part of a plan that kernels read.
#pragma once

#include <cstdint>

namespace pagemill {

// Rows' tokens stand one after the other in the flat batch. Pointers stay the caller's.
//
// block_tables: [num_slots][max_blocks], the row's line is slots[row]
// query_start: [num_rows + 1]; context_lens: [num_rows]
//
// The last query of a row stands at position context_lens - 1. K/V of all tokens that a row sees,
// its own included, are in the cache before any of them is read.
struct BatchLayout {
  const int32_t* block_tables;
  const int32_t* slots;
  const int32_t* query_start;
  const int32_t* context_lens;
  int32_t num_rows;
  int32_t num_slots;
  int32_t max_blocks;

  int32_t num_tokens() const { return query_start[num_rows]; }
  const int32_t* table(int32_t row) const {
    return block_tables + static_cast<int64_t>(slots[row]) * max_blocks;
  }
};

// Throws std::invalid_argument when a length, slot or block id is out of its range.
void check(const BatchLayout& layout, int32_t num_blocks, int32_t block_size);

}  // namespace pagemill
