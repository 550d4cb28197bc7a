#include "cpu/quantized_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/instruction_set.h"
#include "cpu/packed_matrix.h"
#include "cpu/quantized_tile.h"
#include "cpu/thread_pool.h"

namespace pagemill {
namespace {

// Positions of K and V that are worked on at once: enough that the softmax's bookkeeping counts for
// little, few enough that K and then V, widened to 16 bits, stay in the nearest caches.
constexpr int32_t kTilePositions = 128;
constexpr int32_t kUnit = KvCache::kUnit;
constexpr float kLimit = 32767.0f;  // of rounded queries and weights
// Sums of a tile are exact: 32767 * 127 * 64 < 2^31, and so are scores up to head_dim 512.
static_assert(int64_t{32767} * 127 * kTilePositions < int64_t{1} << 31);

const QuantizedTileKernels& tile_kernels() {
  if (instruction_set() >= InstructionSet::kAvx2) return *avx2_quantized_kernels();
  return *portable_quantized_kernels();
}

// A thread's memory, kept from task to task.
struct Scratch {
  std::vector<int16_t> queries, keys, values;
  std::vector<float> results, query_scales, maxima, sums;

  void reserve(int32_t num_queries, int32_t head_dim) {
    const auto grow = [](auto& buffer, int64_t size) {
      if (static_cast<int64_t>(buffer.size()) < size) buffer.resize(size);
    };
    grow(queries, int64_t{num_queries} * head_dim);
    grow(results, int64_t{num_queries} * head_dim);
    grow(keys, int64_t{kTilePositions} * head_dim);
    grow(values, int64_t{kTilePositions} * head_dim);
    grow(query_scales, num_queries);
    grow(maxima, num_queries);
    grow(sums, num_queries);
  }
};

// A tile's scales: of keys, and the factors that weights get before they are rounded.
struct TileScales {
  alignas(32) float keys[kTilePositions];
  alignas(32) float factors[kTilePositions];
  float weight;  // what a rounded weight times a value has to be multiplied by
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
    TileScales scales;
    for (int32_t start = task.start; start < task.end; start += kTilePositions) {
      const int32_t count = std::min(kTilePositions, task.end - start);
      load_tile(task, start, count, scratch, scales);
      for (int32_t first = 0; first < num_queries; first += kTileRows) {
        attend(task, start, count, first, std::min(kTileRows, num_queries - first), scratch,
               scales);
      }
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
    const int32_t num_queries = task.num_members * group_;
    for (int32_t i = 0; i < task.num_members; ++i) {
      const int64_t head = int64_t{member(task, i * group_).token} * args_.num_heads +
                           int64_t{task.kv_head} * group_;
      std::copy_n(args_.queries.values.data() + head * head_dim_, int64_t{group_} * head_dim_,
                  scratch.queries.data() + int64_t{i} * group_ * head_dim_);
      std::copy_n(args_.queries.scales.data() + head, group_,
                  scratch.query_scales.data() + int64_t{i} * group_);
    }
    std::fill_n(scratch.results.data(), int64_t{num_queries} * head_dim_, 0.0f);
    std::fill_n(scratch.maxima.data(), num_queries, -std::numeric_limits<float>::infinity());
    std::fill_n(scratch.sums.data(), num_queries, 0.0f);
  }

  // Widens the tile's K and V to 16 bits, and asks for the next tile's: the system's own prefetching
  // doesn't know the block table.
  void load_tile(const Task& task, int32_t start, int32_t count, Scratch& scratch,
                 TileScales& scales) const {
    const MatrixTileKernels& kernels = matrix_kernels();
    const int32_t block_size = args_.cache.block_size();
    const int64_t unit_elements = int64_t{kUnit} * head_dim_;
    float largest = 0.0f;
    for (int32_t first = 0; first < count; first += kUnit) {
      const int32_t position = start + first, offset = position % block_size;
      const auto head =
          args_.cache.head(args_.layer, task.table[position / block_size], task.kv_head);
      const int64_t place = int64_t{offset} * head_dim_;
      kernels.widen_int8(head.keys + place, unit_elements / 32, nullptr,
                         scratch.keys.data() + int64_t{first} * head_dim_);
      kernels.widen_int8(head.values + place, unit_elements / 32, nullptr,
                         scratch.values.data() + int64_t{first} * head_dim_);
      std::copy_n(head.scales + offset, kUnit, scales.keys + first);
      std::copy_n(head.scales + block_size + offset, kUnit, scales.factors + first);
      const int32_t ahead = position + kTilePositions;
      if (ahead < task.end) {
        const auto next =
            args_.cache.head(args_.layer, task.table[ahead / block_size], task.kv_head);
        const int64_t there = int64_t{ahead % block_size} * head_dim_;
        for (int64_t i = 0; i < unit_elements; i += 64) {
          __builtin_prefetch(next.keys + there + i);
          __builtin_prefetch(next.values + there + i);
        }
      }
    }
    for (int32_t j = 0; j < count; ++j) largest = std::max(largest, scales.factors[j]);
    const float inverse = largest > 0.0f ? kLimit / largest : 0.0f;
    for (int32_t j = 0; j < kTilePositions; ++j) {
      scales.factors[j] = j < count ? scales.factors[j] * inverse : 0.0f;
    }
    scales.weight = largest / kLimit;
  }

  void attend(const Task& task, int32_t start, int32_t count, int32_t first, int32_t num_queries,
              Scratch& scratch, const TileScales& scales) const {
    int32_t visible[kTileRows];
    int32_t most = 0;
    for (int32_t i = 0; i < num_queries; ++i) {
      const int32_t position = member(task, first + i).position;
      visible[i] = std::clamp(position + 1 - start, 0, count);
      most = std::max(most, visible[i]);
    }
    if (most == 0) return;
    const int32_t padded = (most + kUnit - 1) / kUnit * kUnit;
    const MatrixTileKernels& kernels = matrix_kernels();
    const QuantizedTileKernels& tile = tile_kernels();
    alignas(32) int32_t exact[kTileRows * kPanelColumns];
    alignas(32) float scores[kTileRows * kTilePositions];
    alignas(32) int16_t weights[kTileRows * kTilePositions];
    float factors[kTileRows];
    for (int32_t j = 0; j < padded; j += kUnit) {
      kernels.int16(scratch.queries.data() + int64_t{first} * head_dim_, head_dim_,
                    scratch.keys.data() + int64_t{j} * head_dim_, 2 * kUnit, head_dim_ / 2,
                    num_queries, exact);
      kernels.scale_sums(exact, scales.keys + j, nullptr, num_queries, false, scores + j,
                         kTilePositions);
    }
    for (int32_t i = 0; i < num_queries; ++i) {
      int16_t* target = weights + i * kTilePositions;
      if (visible[i] == 0) {
        std::fill_n(target, padded, int16_t{0});
        factors[i] = 1.0f;
        continue;
      }
      factors[i] = tile.softmax(scores + i * kTilePositions, scratch.query_scales[first + i],
                                visible[i], padded, scales.factors, &scratch.maxima[first + i],
                                &scratch.sums[first + i], target);
    }
    for (int32_t d = 0; d < head_dim_; d += kPanelColumns) {
      kernels.int16(weights, kTilePositions, scratch.values.data() + int64_t{2} * d,
                    int64_t{2} * head_dim_, padded / 2, num_queries, exact);
      tile.accumulate(exact, num_queries, factors, scales.weight,
                      scratch.results.data() + int64_t{first} * head_dim_ + d, head_dim_);
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
        const float inverse = 1.0f / scratch.sums[first + g];
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
