#include <algorithm>
#include <numeric>

#include "cpu/quantized_attention.h"

namespace pagemill {
namespace {

// Tokens that go over a range of positions together: the more, the less often K and V are widened.
constexpr int32_t kMaxTokens = 128;
// Up to this many tokens a row is short: it may share a prefix, or be cut by positions.
constexpr int32_t kShortRow = 32;
// Positions from which a common prefix is worth a task of its own.
constexpr int32_t kLeastPrefix = 64;
// A row isn't cut into shorter ranges than this.
constexpr int32_t kLeastRange = 256;

struct Row {
  int32_t index, first_token, num_tokens, context;
  int32_t own_start = 0;  // what stands before is read with a group
  bool is_short() const { return num_tokens > 0 && num_tokens <= kShortRow; }
  int32_t position(int32_t token) const { return context - num_tokens + token - first_token; }
};

// Tokens of a task of the long rows: fewer where there would be too few tasks for the threads.
int32_t tokens_per_task(const std::vector<Row>& rows, int32_t num_kv_heads, int32_t num_threads) {
  int64_t total = 0;
  for (const Row& row : rows) total += row.is_short() ? 0 : row.num_tokens;
  int32_t tokens = kMaxTokens;
  while (tokens > kShortRow && total * num_kv_heads < int64_t{4} * num_threads * tokens) {
    tokens /= 2;
  }
  return tokens;
}

}  // namespace

// Some tokens over a range of positions: a task for each KV head.
struct AttentionSchedule::Span {
  const int32_t* table;
  int32_t start, end;
  std::vector<Member> members;
};

AttentionSchedule::AttentionSchedule(const BatchLayout& layout, int32_t block_size,
                                     int32_t num_kv_heads, int32_t num_threads,
                                     bool share_prefixes) {
  std::vector<Row> rows;
  for (int32_t i = 0; i < layout.num_rows; ++i) {
    const int32_t first = layout.query_start[i];
    rows.push_back({i, first, layout.query_start[i + 1] - first, layout.context_lens[i]});
  }
  std::vector<Span> spans;

  // Groups of short rows with the same first block, and the blocks that all of a group share.
  std::vector<Row*> shorts;
  for (Row& row : rows) {
    if (share_prefixes && row.is_short()) shorts.push_back(&row);
  }
  const auto table = [&](const Row* row) { return layout.table(row->index); };
  std::stable_sort(shorts.begin(), shorts.end(), [&](const Row* a, const Row* b) {
    return table(a)[0] < table(b)[0];
  });
  for (size_t first = 0; first < shorts.size();) {
    size_t last = first;
    int32_t common = INT32_MAX;
    for (; last < shorts.size() && table(shorts[last])[0] == table(shorts[first])[0]; ++last) {
      const Row* row = shorts[last];
      common = std::min(common, (row->context - row->num_tokens) / block_size);
      const int32_t* one = table(shorts[first]);
      common = static_cast<int32_t>(std::mismatch(one, one + common, table(row)).first - one);
    }
    const int32_t end = common * block_size;
    if (last - first >= 2 && end >= kLeastPrefix) {
      Span span{table(shorts[first]), 0, end, {}};
      for (size_t i = first; i < last; ++i) {
        Row* row = shorts[i];
        row->own_start = end;
        for (int32_t token = row->first_token; token < row->first_token + row->num_tokens;
             ++token) {
          if (static_cast<int32_t>(span.members.size()) == kMaxTokens) {
            spans.push_back(span);
            span.members.clear();
          }
          span.members.push_back({token, row->position(token), -1});
        }
      }
      spans.push_back(std::move(span));
    }
    first = last;
  }

  // Each row's own positions.
  int64_t total = 0;
  for (const Row& row : rows) total += int64_t{row.context - row.own_start} * num_kv_heads;
  const auto share = static_cast<int32_t>(
      std::max<int64_t>(kLeastRange, total / (4 * num_threads) / num_kv_heads));
  const int32_t range = (share + block_size - 1) / block_size * block_size;
  const int32_t most = tokens_per_task(rows, num_kv_heads, num_threads);
  for (const Row& row : rows) {
    for (int32_t first = 0; first < row.num_tokens; first += most) {
      const int32_t count = std::min(most, row.num_tokens - first);
      Span span{layout.table(row.index), 0, 0, {}};
      for (int32_t i = 0; i < count; ++i) {
        const int32_t token = row.first_token + first + i;
        span.members.push_back({token, row.position(token), -1});
      }
      const int32_t end = span.members.back().position + 1;
      const int32_t step = row.is_short() ? range : end;
      for (span.start = row.own_start; span.start < end; span.start += step) {
        span.end = std::min(end, span.start + step);
        // No short rest.
        if (row.is_short() && end - span.end < kLeastRange) span.end = end;
        spans.push_back(span);
        if (span.end == end) break;
      }
    }
  }

  // Tokens with several parts merge them; neighbours in one buffer.
  std::vector<int32_t> counts(layout.num_tokens()), next(layout.num_tokens(), -1);
  for (const Span& span : spans) {
    for (const Member& member : span.members) ++counts[member.token];
  }
  for (int32_t token = 0; token < layout.num_tokens(); ++token) {
    if (counts[token] < 2) continue;
    merges_.push_back({token, num_parts_, counts[token]});
    next[token] = num_parts_;
    num_parts_ += counts[token];
  }
  for (const Span& span : spans) {
    const auto first = static_cast<int32_t>(members_.size());
    for (Member member : span.members) {
      if (next[member.token] >= 0) member.part = next[member.token]++;
      members_.push_back(member);
    }
    const auto count = static_cast<int32_t>(span.members.size());
    positions_read_ += int64_t{span.end - span.start} * num_kv_heads;
    for (int32_t kv_head = 0; kv_head < num_kv_heads; ++kv_head) {
      tasks_.push_back({span.table, span.start, span.end, first, count, kv_head,
                        int64_t{span.end - span.start} * (count + 3)});
    }
  }
  std::stable_sort(tasks_.begin(), tasks_.end(),
                   [](const Task& a, const Task& b) { return a.cost > b.cost; });
}

}  // namespace pagemill
