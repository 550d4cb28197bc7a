#include "cpu/quantized_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/aligned.h"
#include "cpu/instruction_set.h"
#include "cpu/packed_matrix.h"
#include "cpu/quantized_range.h"
#include "cpu/thread_pool.h"

namespace pagemill {
namespace {

constexpr float kLimit = 32767.0f;  // of rounded queries
// Queries from which tiles are faster than products of vectors.
constexpr int32_t kLeastForTiles = 12;

// A thread's memory, kept from task to task.
struct Scratch {
  AlignedVector<int16_t> queries;
  AlignedVector<float> results, query_scales, maxima, sums;
  AlignedVector<int32_t> last_positions;

  void reserve(int32_t num_queries, int32_t head_dim) {
    const int64_t padded = (int64_t{num_queries} + 31) / 32 * 32;
    grow(queries, padded * head_dim);
    grow(results, padded * head_dim);
    grow(query_scales, padded);
    grow(maxima, padded);
    grow(sums, padded);
    grow(last_positions, padded);
  }
};

// One layer's attention.
class Runner {
 public:
  using Task = AttentionSchedule::Task;
  using Member = AttentionSchedule::Member;

  Runner(const QuantizedAttentionArgs& args, const AttentionSchedule& schedule,
         std::vector<float>& parts)
      : args_(args),
        schedule_(schedule),
        parts_(parts),
        head_dim_(args.cache.head_dim()),
        group_(args.num_heads / args.cache.num_kv_heads()) {}

  // A part: [group][head_dim] sums of weighted values, then maxima and sums of weights.
  static int64_t part_size(int32_t group, int32_t head_dim) {
    return int64_t{group} * (head_dim + 2);
  }

  void run(const Task& task) const {
    thread_local Scratch scratch;
    const int32_t num_queries = task.num_members * group_;
    scratch.reserve(num_queries, head_dim_);
    load_queries(task, scratch);
    const QuantizedRange range{args_.cache,
                               args_.layer,
                               task.kv_head,
                               task.table,
                               task.start,
                               task.end,
                               num_queries,
                               scratch.queries.data(),
                               scratch.query_scales.data(),
                               scratch.last_positions.data(),
                               scratch.results.data(),
                               scratch.maxima.data(),
                               scratch.sums.data()};
    if (instruction_set() == InstructionSet::kAmx && num_queries >= kLeastForTiles) {
      attend_in_tiles(range);
    } else {
      attend_on_integers(range);
    }
    store(task, scratch);
  }

  void merge(const AttentionSchedule::Merge& merge) const {
    const int64_t size = part_size(group_, head_dim_);
    for (int32_t kv_head = 0; kv_head < args_.cache.num_kv_heads(); ++kv_head) {
      const float* parts = part(merge.first_part, kv_head);
      const int64_t step = size * args_.cache.num_kv_heads();
      for (int32_t g = 0; g < group_; ++g) {
        float* target = out(merge.token, kv_head) + int64_t{g} * head_dim_;
        const int64_t maximum_at = int64_t{group_} * head_dim_ + g;
        float highest = -std::numeric_limits<float>::infinity(), sum = 0.0f;
        for (int32_t i = 0; i < merge.num_parts; ++i) {
          highest = std::max(highest, parts[i * step + maximum_at]);
        }
        std::fill_n(target, head_dim_, 0.0f);
        for (int32_t i = 0; i < merge.num_parts; ++i) {
          const float* one = parts + i * step;
          const float weight = std::exp(one[maximum_at] - highest);
          sum += weight * one[maximum_at + group_];
          const float* source = one + int64_t{g} * head_dim_;
          for (int32_t d = 0; d < head_dim_; ++d) target[d] += weight * source[d];
        }
        for (int32_t d = 0; d < head_dim_; ++d) target[d] /= sum;
      }
    }
  }

 private:
  const Member& member(const Task& task, int32_t query) const {
    return schedule_.members()[task.first_member + query / group_];
  }

  float* out(int32_t token, int32_t kv_head) const {
    return args_.out + (int64_t{token} * args_.num_heads + int64_t{kv_head} * group_) * head_dim_;
  }

  float* part(int32_t index, int32_t kv_head) const {
    const int64_t place = int64_t{index} * args_.cache.num_kv_heads() + kv_head;
    return parts_.data() + place * part_size(group_, head_dim_);
  }

  void load_queries(const Task& task, Scratch& scratch) const {
    for (int32_t i = 0; i < task.num_members; ++i) {
      const Member& one = member(task, i * group_);
      const int64_t head = int64_t{one.token} * args_.num_heads + int64_t{task.kv_head} * group_;
      const int64_t first = int64_t{i} * group_;
      std::copy_n(args_.queries.values.data() + head * head_dim_, int64_t{group_} * head_dim_,
                  scratch.queries.data() + first * head_dim_);
      std::copy_n(args_.queries.scales.data() + head, group_, scratch.query_scales.data() + first);
      std::fill_n(scratch.last_positions.data() + first, group_, one.position);
    }
  }

  void store(const Task& task, const Scratch& scratch) const {
    for (int32_t i = 0; i < task.num_members; ++i) {
      const Member& one = member(task, i * group_);
      const int64_t first = int64_t{i} * group_;
      const float* source = scratch.results.data() + first * head_dim_;
      if (one.part >= 0) {
        float* target = part(one.part, task.kv_head);
        target = std::copy_n(source, int64_t{group_} * head_dim_, target);
        target = std::copy_n(scratch.maxima.data() + first, group_, target);
        std::copy_n(scratch.sums.data() + first, group_, target);
        continue;
      }
      float* target = out(one.token, task.kv_head);
      for (int32_t g = 0; g < group_; ++g) {
        const float inverse = 1.0f / scratch.sums.data()[first + g];
        for (int32_t d = 0; d < head_dim_; ++d) *target++ = *source++ * inverse;
      }
    }
  }

  const QuantizedAttentionArgs& args_;
  const AttentionSchedule& schedule_;
  std::vector<float>& parts_;
  const int32_t head_dim_;
  const int32_t group_;
};

}  // namespace

void QuantizedQueries::resize(int32_t num_tokens, int32_t num_heads, int32_t head_dim) {
  const auto heads = static_cast<size_t>(num_tokens) * static_cast<size_t>(num_heads);
  if (scales.size() < heads) scales.resize(heads);
  if (values.size() < heads * head_dim) values.resize(heads * head_dim);
}

void QuantizedQueries::set(int64_t index, const float* head, int32_t head_dim, float scale) {
  scales[index] = scale * matrix_kernels().quantize(head, head_dim, head_dim, kLimit,
                                                    values.data() + index * head_dim);
}

void quantized_attention(const QuantizedAttentionArgs& args, const AttentionSchedule& schedule) {
  thread_local std::vector<float> parts;
  const int32_t group = args.num_heads / args.cache.num_kv_heads();
  const int64_t needed = int64_t{schedule.num_parts()} * args.cache.num_kv_heads() *
                         Runner::part_size(group, args.cache.head_dim());
  if (static_cast<int64_t>(parts.size()) < needed) parts.resize(needed);
  const Runner runner(args, schedule, parts);
  const auto pool = shared_pool();
  pool->run(static_cast<int32_t>(schedule.tasks().size()),
            [&](int32_t index, int32_t) { runner.run(schedule.tasks()[index]); });
  const auto& merges = schedule.merges();
  const auto per_task = static_cast<int32_t>(merges.size() / pool->num_threads() + 1);
  const auto tasks = static_cast<int32_t>((merges.size() + per_task - 1) / per_task);
  pool->run(tasks, [&](int32_t index, int32_t) {
    const size_t last = std::min(merges.size(), static_cast<size_t>(index + 1) * per_task);
    for (size_t i = static_cast<size_t>(index) * per_task; i < last; ++i) runner.merge(merges[i]);
  });
}

}  // namespace pagemill
