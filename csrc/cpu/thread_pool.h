// A small pool that runs the numbered tasks of one kernel call.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace pagemill {

// Runs `task(0) .. task(n - 1)`, each once, on the calling thread and the pool's own; tasks are
// taken in order, so the longest should come first. Tasks must not throw and must not use the
// pool. Calls from several threads run one after the other.
class ThreadPool {
 public:
  static constexpr int32_t kMaxThreads = 256;

  // `num_threads` counts the caller: 1 makes no thread at all. Throws std::invalid_argument.
  explicit ThreadPool(int32_t num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int32_t num_threads() const { return static_cast<int32_t>(threads_.size()) + 1; }

  // `task(index, thread)`: thread is below num_threads(), and no two tasks run on one at a time.
  void run(int32_t num_tasks, const std::function<void(int32_t, int32_t)>& task);

 private:
  using Task = std::function<void(int32_t, int32_t)>;

  void work(int32_t thread);
  void take_tasks(const Task& task, int32_t thread);

  std::vector<std::thread> threads_;
  std::mutex call_mutex_;  // held for a whole run()

  std::mutex mutex_;  // guards task_ and stopping_
  std::condition_variable started_, finished_;
  const Task* task_ = nullptr;  // null between runs: a thread that wakes late finds nothing
  bool stopping_ = false;
  std::atomic<uint64_t> generation_{0};  // grows with each run()
  std::atomic<int32_t> active_{0};       // pool threads at work; grows only under mutex_
  std::atomic<int32_t> next_task_{0};
  int32_t num_tasks_ = 0;
  int64_t owner_pid_;
};

// The pool that all kernels share; made with one thread for each core at first use, and anew in
// a process that was forked after that. The pointer keeps a pool alive while a kernel runs on it.
std::shared_ptr<ThreadPool> shared_pool();

// Replaces the shared pool. Throws std::invalid_argument for less than 1 or more than 256.
void set_num_threads(int32_t num_threads);

}  // namespace pagemill
