#include "cpu/thread_pool.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace pagemill {
namespace {

// A worker looks for the next run this long before it sleeps: the kernels of one step follow
// each other within microseconds, and waking a sleeper takes some tens of them.
constexpr auto kSpin = std::chrono::microseconds(30);

inline void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

template <typename Condition>
bool spin_until(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (condition()) return true;
      pause_briefly();
    }
  } while (std::chrono::steady_clock::now() < end);
  return condition();
}

}  // namespace

ThreadPool::ThreadPool(int32_t num_threads) : owner_pid_(getpid()) {
  if (num_threads < 1 || num_threads > kMaxThreads) {
    throw std::invalid_argument("a thread pool has 1 to 256 threads");
  }
  for (int32_t thread = 1; thread < num_threads; ++thread) {
    threads_.emplace_back([this, thread] { work(thread); });
  }
}

ThreadPool::~ThreadPool() {
  if (owner_pid_ != getpid()) {  // a fork's copy: the threads exist in the parent alone
    for (std::thread& thread : threads_) thread.detach();
    return;
  }
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    generation_.fetch_add(1, std::memory_order_release);
  }
  started_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::run(int32_t num_tasks, const Task& task) {
  std::lock_guard call(call_mutex_);
  if (threads_.empty() || num_tasks <= 1) {
    for (int32_t index = 0; index < num_tasks; ++index) task(index, 0);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    task_ = &task;
    num_tasks_ = num_tasks;
    next_task_.store(0, std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
  }
  started_.notify_all();
  take_tasks(task, 0);
  {
    // All tasks are taken: only threads that are at work on one have to be waited for.
    std::lock_guard lock(mutex_);
    task_ = nullptr;
  }
  const auto idle = [this] { return active_.load(std::memory_order_acquire) == 0; };
  if (!spin_until(idle)) {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, idle);
  }
}

void ThreadPool::take_tasks(const Task& task, int32_t thread) {
  for (;;) {
    const int32_t index = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (index >= num_tasks_) return;
    task(index, thread);
  }
}

void ThreadPool::work(int32_t thread) {
  uint64_t seen = 0;
  for (;;) {
    const auto changed = [&] { return generation_.load(std::memory_order_acquire) != seen; };
    if (!spin_until(changed)) {
      std::unique_lock lock(mutex_);
      started_.wait(lock, changed);
    }
    const Task* task;
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
      seen = generation_.load(std::memory_order_relaxed);
      task = task_;
      if (task != nullptr) active_.fetch_add(1, std::memory_order_relaxed);
    }
    if (task == nullptr) continue;
    take_tasks(*task, thread);
    if (active_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      std::lock_guard lock(mutex_);
      finished_.notify_one();
    }
  }
}

namespace {

struct SharedPool {
  std::mutex mutex;
  std::shared_ptr<ThreadPool> pool;
  int64_t pid = 0;
};

SharedPool& shared() {
  static SharedPool instance;
  return instance;
}

}  // namespace

std::shared_ptr<ThreadPool> shared_pool() {
  SharedPool& state = shared();
  std::lock_guard lock(state.mutex);
  if (state.pool == nullptr || state.pid != getpid()) {
    const auto cores = static_cast<int32_t>(std::thread::hardware_concurrency());
    const int32_t wanted = state.pool == nullptr ? cores : state.pool->num_threads();
    state.pool = std::make_shared<ThreadPool>(std::clamp(wanted, 1, ThreadPool::kMaxThreads));
    state.pid = getpid();
  }
  return state.pool;
}

void set_num_threads(int32_t num_threads) {
  auto pool = std::make_shared<ThreadPool>(num_threads);
  SharedPool& state = shared();
  std::lock_guard lock(state.mutex);
  state.pool = std::move(pool);
  state.pid = getpid();
}

}  // namespace pagemill
