// An engine's threads around one scheduler, for a build with ThreadSanitizer: threads [requests].
//
// As in the engine, an IO thread brings requests and takes answers, a step thread plans and
// commits, and an executor thread runs one plan, on the kernels' pool, while the next is planned.
// Every answer must be what its request gets alone.
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>

#include "cpu/thread_pool.h"
#include "scheduler.h"

using namespace pagemill;

namespace {

template <typename T>
class Channel {
 public:
  void put(T item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
    changed_.notify_one();
  }
  T take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !items_.empty(); });
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }
  std::optional<T> poll() {
    const std::lock_guard lock(mutex_);
    if (items_.empty()) return std::nullopt;
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> items_;
};

struct Question {
  int64_t id;
  std::vector<int32_t> tokens;
};
struct Answer {
  int64_t id;
  std::vector<int32_t> tokens;
};
struct Result {
  std::vector<int32_t> tokens, counts;
  std::vector<uint8_t> ends;
};

constexpr int32_t kMaxTokens = 12, kMaxContext = 128, kInFlight = 40;

int32_t next_token(const int32_t* tokens, int32_t count) {
  uint32_t hash = 2166136261u;
  for (int32_t i = 0; i < count; ++i) hash = (hash ^ static_cast<uint32_t>(tokens[i])) * 16777619u;
  return static_cast<int32_t>(hash % 50);
}

SchedulerConfig config() {
  SchedulerConfig c;
  c.num_blocks = 80;
  c.max_num_seqs = 16;
  c.max_num_batched_tokens = 96;
  c.max_model_len = kMaxContext;
  c.num_scheduler_steps = 2;
  c.max_outstanding_plans = 2;
  return c;
}

// A model whose K/V are the tokens themselves.
class Model {
 public:
  Result run(const Plan& plan) {
    for (size_t i = 0; i < plan.table_slots.size(); ++i) {
      tables_[plan.table_slots[i]][plan.table_indices[i]] = plan.table_blocks[i];
    }
    for (int32_t row = 0; row < plan.num_rows; ++row) {
      for (int32_t at = plan.query_start[row]; at < plan.query_start[row + 1]; ++at) {
        const int32_t token = plan.token_ids[at];
        cache_[plan.slot_mapping[at]] = token >= 0 ? token : last_[plan.slots[row]];
      }
    }
    std::vector<std::vector<int32_t>> brought(plan.num_rows);
    pool_.run(plan.num_rows, [&](int32_t row, int32_t) {
      if (plan.sampled[row] == 0) return;
      const int32_t slot = plan.slots[row];
      for (int32_t pass = 0; pass < plan.passes[row]; ++pass) {
        const int32_t length = plan.context_lens[row] + pass;
        if (pass > 0) cache_[place(slot, length - 1)] = last_[slot];
        std::vector<int32_t> held(length);
        for (int32_t i = 0; i < length; ++i) held[i] = cache_[place(slot, i)];
        last_[slot] = next_token(held.data(), length);
        brought[row].push_back(last_[slot]);
      }
    });
    Result result;
    for (int32_t row = 0; row < plan.num_rows; ++row) {
      if (plan.sampled[row] == 0) continue;
      result.counts.push_back(static_cast<int32_t>(brought[row].size()));
      result.ends.push_back(0);
      result.tokens.insert(result.tokens.end(), brought[row].begin(), brought[row].end());
    }
    return result;
  }

 private:
  int32_t place(int32_t slot, int32_t position) const {
    return tables_[slot][position / 16] * 16 + position % 16;
  }

  ThreadPool pool_{3};
  std::vector<int32_t> cache_ = std::vector<int32_t>(80 * 16);
  std::vector<std::array<int32_t, kMaxContext / 16>> tables_{16};
  std::vector<int32_t> last_ = std::vector<int32_t>(16);
};

void step_loop(Channel<Question>& inbox, Channel<Answer>& outbox, Channel<Plan*>& plans,
               Channel<Result>& results, int64_t left) {
  Scheduler scheduler(config());
  std::deque<Plan*> launched;
  std::unordered_map<int64_t, std::vector<int32_t>> answers;
  while (left > 0) {
    while (auto question = inbox.poll()) {
      Submission submission;
      submission.id = question->id;
      submission.token_ids = question->tokens;
      submission.max_tokens = kMaxTokens;
      if (scheduler.add(submission) != Refusal::kNone) std::abort();
    }
    while (launched.size() < 2) {
      Plan& plan = scheduler.plan(0);
      if (plan.num_rows == 0) break;
      launched.push_back(&plan);
      plans.put(&plan);
    }
    if (launched.empty()) continue;
    const Result result = results.take();
    const Outcome& done =
        scheduler.commit(*launched.front(), result.tokens, result.counts, result.ends);
    launched.pop_front();
    for (int32_t i = 0; i < done.num_rows; ++i) {
      std::vector<int32_t>& answer = answers[done.request_ids[i]];
      answer.insert(answer.end(), &done.tokens[done.token_start[i]],
                    &done.tokens[done.token_start[i]] + done.token_start[i + 1] -
                        done.token_start[i]);
      if (done.finish[i] == 0) continue;
      outbox.put({done.request_ids[i], std::move(answer)});
      answers.erase(done.request_ids[i]);
      --left;
    }
  }
  plans.put(nullptr);
  if (!scheduler.check_integrity().empty()) std::abort();
}

void executor_loop(Channel<Plan*>& plans, Channel<Result>& results) {
  Model model;
  while (Plan* plan = plans.take()) results.put(model.run(*plan));
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t requests = argc > 1 ? std::atoll(argv[1]) : 2'000;
  Channel<Question> inbox;
  Channel<Answer> outbox;
  Channel<Plan*> plans;
  Channel<Result> results;
  std::thread executor(executor_loop, std::ref(plans), std::ref(results));
  std::thread steps(step_loop, std::ref(inbox), std::ref(outbox), std::ref(plans),
                    std::ref(results), requests);
  // The IO thread is this one.
  std::unordered_map<int64_t, std::vector<int32_t>> asked;
  int64_t sent = 0, wrong = 0;
  for (int64_t answered = 0; answered < requests; ++answered) {
    while (sent < requests && sent < answered + kInFlight) {
      std::vector<int32_t> tokens(1 + sent * 37 % 100);
      for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i < 40 ? i : sent);
      asked[sent] = tokens;
      inbox.put({sent++, std::move(tokens)});
    }
    const Answer answer = outbox.take();
    std::vector<int32_t> tokens = std::move(asked[answer.id]);
    asked.erase(answer.id);
    const auto prompt = static_cast<int32_t>(tokens.size());
    for (int32_t i = 0; i < kMaxTokens; ++i) {
      tokens.push_back(next_token(tokens.data(), static_cast<int32_t>(tokens.size())));
    }
    wrong += !std::equal(answer.tokens.begin(), answer.tokens.end(), tokens.begin() + prompt,
                         tokens.end());
  }
  steps.join();
  executor.join();
  if (wrong > 0) {
    std::fprintf(stderr, "threads: %lld wrong answers\n", static_cast<long long>(wrong));
    return 1;
  }
  std::printf("threads: ok\n");
}
