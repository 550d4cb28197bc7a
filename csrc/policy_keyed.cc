#include "policy_keyed.h"

#include <cmath>
#include <stdexcept>

namespace pagemill {

void KeyedPolicy::enqueue(Request& request) {
  const int64_t sequence = next_sequence_++;
  request.rank = {key(request, sequence), sequence};
  queue_.insert(&request);
}

void KeyedPolicy::requeue(Request& request) { queue_.insert(&request); }

Request* KeyedPolicy::front() { return queue_.empty() ? nullptr : *queue_.begin(); }

void KeyedPolicy::start(Request& request) { queue_.erase(&request); }

void KeyedPolicy::remove(Request& request) { queue_.erase(&request); }

std::string KeyedPolicy::check_integrity() const {
  for (const Request* request : queue_) {
    if (request->state != RequestState::kWaiting) return "a queued request isn't waiting";
  }
  return "";
}

namespace {

// First come, first served.
class Fcfs final : public KeyedPolicy {
  double key(Request&, int64_t) override { return 0; }
};

// By the caller's number alone.
class Static final : public KeyedPolicy {
  double key(Request& request, int64_t) override { return static_cast<double>(request.priority); }
};

// By priority, where every `ageing_s` seconds of waiting outweigh one level. All requests age at
// the same pace, so their order among each other never changes and a fixed key expresses it.
class Priority final : public KeyedPolicy {
 public:
  explicit Priority(double ageing_s) : ageing_s_(ageing_s) {}

 private:
  double key(Request& request, int64_t) override {
    return static_cast<double>(request.priority) * ageing_s_ + request.arrival;
  }

  double ageing_s_;
};

// Earliest deadline first. A request without one counts as due `patience_s` after its arrival,
// so that a stream of urgent requests can't keep it waiting for ever.
class Deadline final : public KeyedPolicy {
 public:
  explicit Deadline(double patience_s) : patience_s_(patience_s) {}

 private:
  double key(Request& request, int64_t) override {
    return std::isinf(request.deadline) ? request.arrival + patience_s_ : request.deadline;
  }

  double patience_s_;
};

}  // namespace

std::unique_ptr<Policy> make_keyed_policy(const SchedulerConfig& config) {
  if (config.policy == "fcfs") return std::make_unique<Fcfs>();
  if (config.policy == "static") return std::make_unique<Static>();
  if (config.policy == "priority") return std::make_unique<Priority>(config.ageing_s);
  if (config.policy == "deadline") return std::make_unique<Deadline>(config.ageing_s * 60);
  throw std::invalid_argument("not a keyed policy: " + config.policy);
}

}  // namespace pagemill
