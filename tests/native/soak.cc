// A long random life of the scheduler, for a build with sanitizers: soak [steps] [seed].
//
// Every few steps all structures are checked; at the end every block must be free. Build:
//   g++ -std=c++20 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover -Icsrc
//     tests/native/soak.cc csrc/{block_pool,prefix_index,plan}.cc csrc/{policy,scheduler}*.cc
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>
#include <string>

#include "scheduler.h"

using namespace pagemill;

namespace {

class Life {
 public:
  Life(uint64_t seed) : random_(seed), config_(sizes()), scheduler_(config_) {}

  void live(int64_t steps) {
    while (steps > 0) {
      const int move = below(100);
      if (move < 20) submit();
      else if (move < 24) scheduler_.cancel(some_id());
      else if (move < 28) fork();
      else if (move < 30) scheduler_.renew(1 + below(2), now_ + below(60));
      else if (move < 38) propose();
      else if (move < 65) plan();
      else if (!plans_.empty()) {
        if (move < 97) commit();
        else abandon();
        if (--steps % 16 == 0) check();
      }
    }
    while (true) {
      if (plans_.size() == static_cast<size_t>(config_.max_outstanding_plans)) commit();
      else if (!plan()) {
        if (plans_.empty()) break;
        commit();
      }
    }
    check();
    const bool idle = scheduler_.num_waiting() == 0 && scheduler_.num_running() == 0;
    if (!idle || scheduler_.num_free_blocks() != config_.num_blocks) fail("something is left over");
  }

 private:
  int below(int bound) { return static_cast<int>(random_() % bound); }
  int64_t some_id() { return next_id_ - 1 - below(30); }

  SchedulerConfig sizes() {
    const char* const policies[] = {"fcfs", "static", "priority", "deadline", "prefix", "fair"};
    SchedulerConfig c;
    c.num_blocks = 30 + below(200);
    c.block_size = 1 << below(5);
    c.max_num_seqs = 1 + below(40);
    c.max_model_len = std::min(256, c.num_blocks * c.block_size);
    c.enable_chunked_prefill = below(5) > 0;
    c.max_num_batched_tokens = std::max(c.max_num_seqs, c.enable_chunked_prefill ? 1 : 256) + below(200);
    c.enable_prefix_caching = below(5) > 0;
    c.long_prefill_token_threshold = below(2) * 20;
    c.max_partial_prefills = below(3);
    c.policy = policies[below(6)];
    c.fair_quantum = 1 + below(100);
    c.group_size = 1 + below(20);
    c.watermark_blocks = below(4);
    c.max_waiting_requests = 1 + below(200);
    c.num_scheduler_steps = 1 + below(3) * below(4);
    c.max_outstanding_plans = 1 + below(2);
    return c;
  }

  void submit() {
    std::vector<int32_t> tokens(1 + below(config_.max_model_len));
    const int root = below(3);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = below(200) == 0 ? below(9) : root;
    std::vector<int32_t> stops(below(7));
    for (int32_t& stop : stops) stop = below(60);
    Submission s;
    s.id = next_id_++;
    s.token_ids = tokens;
    s.max_tokens = 1 + below(60);
    s.stop_token_ids = stops;
    s.priority = below(5);
    s.salt = below(3);
    s.salt_from = below(64);
    s.tenant = below(5);
    s.tag = below(3000);
    s.adapter = below(8) == 0;
    s.client = below(3);
    s.arrival = now_;
    if (below(3) == 0) s.deadline = now_ + below(200);
    s.multi_step = below(4) > 0;
    scheduler_.add(s);
  }

  void fork() {
    if (scheduler_.num_waiting() > 100) return;  // no limit of the queue holds them up
    const int64_t parent = some_id();
    const int keep = below(2) * below(200) - 1;
    try {
      scheduler_.fork(parent, next_id_++, keep, below(3) - 1);
    } catch (const std::invalid_argument&) {  // more tokens than it has
    }
  }

  void propose() {
    std::vector<int32_t> drafts(below(8));
    for (int32_t& draft : drafts) draft = below(60);
    for (int i = 0; i < 10; ++i) scheduler_.propose(some_id(), drafts);
  }

  bool plan() {
    if (plans_.size() == static_cast<size_t>(config_.max_outstanding_plans)) return false;
    now_ += 1;
    Plan& plan = scheduler_.plan(now_);
    if (plan.num_tokens > config_.max_num_batched_tokens) fail("over the budget");
    if (plan.num_rows > 0) plans_.push_back(&plan);
    return plan.num_rows > 0;
  }

  void commit() {
    Plan& plan = *plans_.front();
    plans_.pop_front();
    std::vector<int32_t> tokens, counts;
    std::vector<uint8_t> ends;
    for (int32_t row = 0; row < plan.num_rows; ++row) {
      if (!plan.sampled[row]) continue;
      const int most = plan.num_drafts[row] + plan.passes[row];
      const int count = plan.num_drafts[row] == 0 && below(30) > 0 ? most : below(most + 1);
      counts.push_back(count);
      ends.push_back(below(40) == 0);
      for (int i = 0; i < count; ++i) tokens.push_back(below(300));
    }
    scheduler_.commit(plan, tokens, counts, ends);
  }

  void abandon() {
    scheduler_.abandon(*plans_.back());
    plans_.pop_back();
  }

  void check() {
    const std::string wrong = scheduler_.check_integrity();
    if (!wrong.empty()) fail(wrong.c_str());
  }

  [[noreturn]] void fail(const char* what) {
    std::fprintf(stderr, "soak: %s (policy %s)\n", what, config_.policy.c_str());
    std::exit(1);
  }

  std::mt19937_64 random_;
  SchedulerConfig config_;
  Scheduler scheduler_;
  std::deque<Plan*> plans_;
  int64_t next_id_ = 0;
  double now_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  int64_t steps = argc > 1 ? std::atoll(argv[1]) : 20'000;
  uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  const int64_t each = 2'000;
  for (; steps > 0; steps -= each, ++seed) Life(seed).live(std::min(steps, each));
  std::printf("soak: ok\n");
}
