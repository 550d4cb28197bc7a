#include "cpu/paged_attention.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "cpu/aligned.h"
#include "cpu/attention_tile.h"
#include "cpu/instruction_set.h"
#include "cpu/thread_pool.h"

namespace pagemill {
namespace {

constexpr int32_t kMaxHeadDim = 512;
// Query vectors (tokens x heads of one KV head) that go over the keys together. More of them
// share one pass over K and V; with 48 their scores and results still fit the caches.
constexpr int32_t kMaxQueries = 48;

// Some neighbouring query tokens of one row, for the heads of one KV head.
struct Task {
  int32_t row;
  int32_t kv_head;
  int32_t first_token;  // within the flat batch
  int32_t num_tokens;
  int64_t cost;  // query-position pairs
};

const AttentionTileKernels& tile_kernels() {
  const InstructionSet set = instruction_set();
  if (set >= InstructionSet::kAvx512) return *avx512_tile_kernels();
  if (set == InstructionSet::kAvx2) return *avx2_tile_kernels();
  return *portable_tile_kernels();
}

// A thread's scratch memory, kept from call to call.
struct Scratch {
  std::vector<float> queries, keys, scores, results, maxima, sums;

  void reserve(int32_t num_queries, int32_t head_dim) {
    grow(queries, int64_t{num_queries} * head_dim);
    grow(results, int64_t{num_queries} * head_dim);
    grow(keys, int64_t{kTilePositions} * head_dim);
    grow(scores, int64_t{num_queries} * kTilePositions);
    grow(maxima, num_queries);
    grow(sums, num_queries);
  }
};

// Works through one task at a time.
class TaskRunner {
 public:
  TaskRunner(const PagedAttentionArgs& args, const AttentionTileKernels& kernels)
      : args_(args), kernels_(kernels), group_(args.num_heads / args.num_kv_heads) {}

  void run(const Task& task) const {
    thread_local Scratch scratch;
    const int32_t num_queries = task.num_tokens * group_;
    scratch.reserve(num_queries, args_.head_dim);
    load_queries(task, scratch);
    const int32_t context = args_.layout.context_lens[task.row];
    const int32_t row_end = args_.layout.query_start[task.row + 1];
    // Position of the task's first and last query token.
    const int32_t first_position = context - (row_end - task.first_token);
    const int32_t last_position = first_position + task.num_tokens - 1;
    for (int32_t start = 0; start <= last_position; start += kTilePositions) {
      const int32_t count = std::min(kTilePositions, last_position + 1 - start);
      attend_tile(task, start, count, first_position, scratch);
    }
    store_results(task, scratch);
  }

 private:
  // Where the task's heads of a token begin in `out`.
  int64_t out_offset(const Task& task, int32_t token) const {
    return (static_cast<int64_t>(task.first_token + token) * args_.num_heads +
            static_cast<int64_t>(task.kv_head) * group_) *
           args_.head_dim;
  }

  void load_queries(const Task& task, Scratch& scratch) const {
    const int32_t width = group_ * args_.head_dim;
    for (int32_t token = 0; token < task.num_tokens; ++token) {
      const float* source = args_.query + (task.first_token + token) * args_.query_stride +
                            int64_t{task.kv_head} * width;
      float* target = scratch.queries.data() + static_cast<int64_t>(token) * width;
      for (int32_t i = 0; i < width; ++i) target[i] = source[i] * args_.scale;
    }
    const int32_t num_queries = task.num_tokens * group_;
    std::fill_n(scratch.results.data(), static_cast<int64_t>(num_queries) * args_.head_dim, 0.0f);
    std::fill_n(scratch.maxima.data(), num_queries, -std::numeric_limits<float>::infinity());
    std::fill_n(scratch.sums.data(), num_queries, 0.0f);
  }

  void attend_tile(const Task& task, int32_t start, int32_t count, int32_t first_position,
                   Scratch& scratch) const {
    const int32_t head_dim = args_.head_dim;
    const int32_t padded = (count + 15) / 16 * 16;
    const float* key_rows[kTilePositions];
    const float* value_rows[kTilePositions];
    const int32_t* table = args_.layout.table(task.row);
    for (int32_t j = 0; j < count; ++j) {
      const int32_t position = start + j;
      const int64_t token = static_cast<int64_t>(table[position / args_.block_size]) *
                                args_.block_size +
                            position % args_.block_size;
      const int64_t offset = (token * args_.num_kv_heads + task.kv_head) * head_dim;
      key_rows[j] = args_.key_cache + offset;
      value_rows[j] = args_.value_cache + offset;
    }
    kernels_.transpose(key_rows, count, head_dim, scratch.keys.data());
    const float* key_columns[kMaxHeadDim];
    for (int32_t d = 0; d < head_dim; ++d) {
      key_columns[d] = scratch.keys.data() + static_cast<int64_t>(d) * kTilePositions;
    }
    // Queries that stand before this tile see none of it.
    const int32_t first_token = std::max(0, start - first_position);
    const int32_t first = first_token * group_;
    const int32_t num_queries = task.num_tokens * group_ - first;
    float* scores = scratch.scores.data();
    float* results = scratch.results.data() + static_cast<int64_t>(first) * head_dim;
    kernels_.multiply(scratch.queries.data() + static_cast<int64_t>(first) * head_dim, head_dim,
                      key_columns, scores, kTilePositions, num_queries, padded, head_dim, false);
    for (int32_t i = 0; i < num_queries; ++i) {
      const int32_t position = first_position + (first + i) / group_;
      const int32_t visible = std::min(count, position + 1 - start);
      const float factor =
          kernels_.softmax(scores + static_cast<int64_t>(i) * kTilePositions, visible, padded,
                           &scratch.maxima[first + i], &scratch.sums[first + i]);
      if (factor != 1.0f) {
        kernels_.scale(results + static_cast<int64_t>(i) * head_dim, head_dim, factor);
      }
    }
    kernels_.multiply(scores, kTilePositions, value_rows, results, head_dim, num_queries, head_dim,
                      count, true);
  }

  void store_results(const Task& task, const Scratch& scratch) const {
    for (int32_t token = 0; token < task.num_tokens; ++token) {
      float* target = args_.out + out_offset(task, token);
      for (int32_t g = 0; g < group_; ++g) {
        const int32_t query = token * group_ + g;
        const float inverse = 1.0f / scratch.sums[query];
        const float* source = scratch.results.data() + static_cast<int64_t>(query) * args_.head_dim;
        for (int32_t d = 0; d < args_.head_dim; ++d) {
          target[static_cast<int64_t>(g) * args_.head_dim + d] = source[d] * inverse;
        }
      }
    }
  }

  const PagedAttentionArgs& args_;
  const AttentionTileKernels& kernels_;
  const int32_t group_;
};

// Cuts the batch into tasks, the longest first, so that the last ones to run are short.
std::vector<Task> make_tasks(const PagedAttentionArgs& args) {
  const int32_t group = args.num_heads / args.num_kv_heads;
  const int32_t max_tokens = std::max(1, kMaxQueries / group);
  std::vector<Task> tasks;
  for (int32_t row = 0; row < args.layout.num_rows; ++row) {
    const int32_t row_end = args.layout.query_start[row + 1];
    for (int32_t first = args.layout.query_start[row]; first < row_end; first += max_tokens) {
      const int32_t num_tokens = std::min(max_tokens, row_end - first);
      const int64_t seen = args.layout.context_lens[row] - (row_end - first) + num_tokens;
      for (int32_t kv_head = 0; kv_head < args.num_kv_heads; ++kv_head) {
        tasks.push_back({row, kv_head, first, num_tokens, seen * num_tokens});
      }
    }
  }
  std::stable_sort(tasks.begin(), tasks.end(),
                   [](const Task& a, const Task& b) { return a.cost > b.cost; });
  return tasks;
}

void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(std::string("paged_attention: ") + message);
}

}  // namespace

void check(const PagedAttentionArgs& args) {
  require(args.num_kv_heads >= 1 && args.num_heads >= args.num_kv_heads &&
              args.num_heads % args.num_kv_heads == 0,
          "heads don't divide over KV heads");
  require(args.head_dim >= 1 && args.head_dim <= kMaxHeadDim, "head_dim must be 1 to 512");
  check(args.layout, args.num_blocks, args.block_size);
  require(args.layout.num_rows == 0 || (args.query != nullptr && args.key_cache != nullptr &&
                                        args.value_cache != nullptr && args.out != nullptr),
          "null pointer");
  require(args.layout.num_tokens() <= 1 ||
              args.query_stride >= int64_t{args.num_heads} * args.head_dim,
          "query_stride is too small");
}

void paged_attention(const PagedAttentionArgs& args) {
  const std::vector<Task> tasks = make_tasks(args);
  const TaskRunner runner(args, tile_kernels());
  shared_pool()->run(static_cast<int32_t>(tasks.size()),
                     [&](int32_t index, int32_t) { runner.run(tasks[index]); });
}

}  // namespace pagemill
