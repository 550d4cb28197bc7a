#include "cpu/batch_layout.h"

#include <stdexcept>
#include <string>

namespace pagemill {
namespace {

void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(std::string("batch layout: ") + message);
}

}  // namespace

void check(const BatchLayout& layout, int32_t num_blocks, int32_t block_size) {
  require(layout.num_rows >= 0 && layout.num_slots >= 0 && layout.max_blocks >= 0,
          "negative size");
  require(num_blocks >= 1 && block_size >= 1, "empty cache");
  require(layout.query_start[0] == 0, "query_start must begin with 0");
  for (int32_t row = 0; row < layout.num_rows; ++row) {
    const int64_t tokens =
        static_cast<int64_t>(layout.query_start[row + 1]) - layout.query_start[row];
    const int64_t context = layout.context_lens[row];
    require(tokens >= 0, "query_start must not fall");
    require(context >= tokens, "a row has more queries than context");
    const int64_t blocks = (context + block_size - 1) / block_size;
    require(blocks <= layout.max_blocks, "context_lens reaches past the block table");
    require(layout.slots[row] >= 0 && layout.slots[row] < layout.num_slots, "slot out of range");
    const int32_t* table = layout.table(row);
    for (int64_t i = 0; i < blocks; ++i) {
      require(table[i] >= 0 && table[i] < num_blocks, "block id out of range");
    }
  }
}

}  // namespace pagemill
