#include "plan.h"

#include <algorithm>
#include <numeric>

namespace pagemill {

Plan::Plan(const SchedulerConfig& config) {
  const size_t rows_max = config.max_num_seqs;
  const size_t tokens_max = config.max_num_batched_tokens;
  slots.resize(rows_max);
  query_start.resize(rows_max + 1);
  context_lens.resize(rows_max);
  sampled.resize(rows_max);
  num_drafts.resize(rows_max);
  passes.resize(rows_max);
  rows.resize(rows_max);
  token_ids.resize(tokens_max);
  positions.resize(tokens_max);
  slot_mapping.resize(tokens_max);
}

void Plan::clear() {
  num_rows = num_tokens = num_sampled = 0;
  query_start[0] = 0;
  started_slots.clear();
  started_ids.clear();
  ended_slots.clear();
  table_slots.clear();
  table_indices.clear();
  table_blocks.clear();
  copy_src.clear();
  copy_dst.clear();
  ended_ids.clear();
  ended_reasons.clear();
  registered.clear();
  copied.clear();
}

void PlainRows::save(Plan& plan) const {
  const int32_t row = plan.num_rows;
  const int32_t token = plan.num_tokens;
  for (int32_t i = 0; i < added_; ++i) plan.positions[token + i] = context_lens_[i] - 1;
  std::iota(plan.query_start.begin() + row + 1,
            plan.query_start.begin() + row + 1 + added_, token + 1);
  std::fill_n(plan.sampled.begin() + row, added_, 1);
  std::fill_n(plan.num_drafts.begin() + row, added_, 0);
  std::fill_n(plan.passes.begin() + row, added_, 1);
  plan.num_sampled += added_;
  plan.num_rows += added_;
  plan.num_tokens += added_;
}

void PlainOutcome::save(Outcome& outcome) const {
  const int32_t row = outcome.num_rows;
  const int32_t token = outcome.num_tokens();
  std::copy_n(tokens_, added_, outcome.tokens.begin() + token);
  std::iota(outcome.token_start.begin() + row + 1,
            outcome.token_start.begin() + row + 1 + added_, token + 1);
  std::fill_n(outcome.finish.begin() + row, added_, 0);
  outcome.num_rows += added_;
}

void Outcome::reserve(size_t rows, size_t num_tokens) {
  request_ids.resize(rows);
  token_start.resize(rows + 1);
  tokens.resize(num_tokens);
  finish.resize(rows);
}

}  // namespace pagemill
