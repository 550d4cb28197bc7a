// Work on the rows of a batch, spread over the shared thread pool.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/thread_pool.h"

namespace pagemill {

// Calls `work(row)` for each row, many rows to a task: below some numbers a task isn't worth
// another thread.
template <typename Work>
void for_rows(int32_t num_rows, int64_t row_size, const Work& work) {
  constexpr int64_t kNumbersPerTask = 16384;
  const auto per_task =
      static_cast<int32_t>(std::clamp<int64_t>(kNumbersPerTask / row_size, 1, 1 << 20));
  const int32_t tasks = (num_rows + per_task - 1) / per_task;
  const auto task = [&](int32_t index, int32_t) {
    const int32_t last = std::min(num_rows, (index + 1) * per_task);
    for (int32_t row = index * per_task; row < last; ++row) work(row);
  };
  if (tasks == 1) {
    task(0, 0);
  } else {
    shared_pool()->run(tasks, task);
  }
}

}  // namespace pagemill
