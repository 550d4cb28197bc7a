// Sizes and switches of a scheduler.
#pragma once

#include <cstdint>
#include <string>

namespace pagemill {

struct SchedulerConfig {
  int32_t num_blocks = 0;
  int32_t block_size = 16;
  int32_t max_num_seqs = 64;
  int32_t max_num_batched_tokens = 512;  // query tokens of one step, drafts included
  int32_t max_model_len = 8192;
  bool enable_prefix_caching = true;
  bool enable_chunked_prefill = true;
  int32_t long_prefill_token_threshold = 0;  // most prompt tokens of one request a step; 0: no cap
  int32_t max_partial_prefills = 0;          // most requests in the midst of their prompt; 0: any
  std::string policy = "fcfs";
  double ageing_s = 10.0;      // "priority": seconds of waiting that outweigh one level;
                               // "deadline": wait granted to a request without a deadline, x 60
  int32_t fair_quantum = 2048;  // "fair": tokens a tenant may start per round
  int32_t group_size = 256;     // "prefix": requests of one prefix served before others' turn
  int32_t watermark_blocks = 0;  // blocks kept free for running requests when admitting
  int32_t max_waiting_requests = 4096;
  int64_t max_waiting_tokens = 4'000'000;
  int32_t num_scheduler_steps = 1;    // decode passes a plan
  int32_t max_outstanding_plans = 1;  // 2: a plan is made while the one before it runs

  // Throws std::invalid_argument naming the field that can't be served.
  void validate() const;
};

}  // namespace pagemill
