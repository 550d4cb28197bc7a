// In which order waiting requests start, and which running ones give way.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "request.h"
#include "scheduler_config.h"

namespace pagemill {

// The queue of waiting requests. A policy gives each request a Rank when it first starts or
// queues; among running requests a higher rank is preempted first, and the lowest rank never is,
// so some request always gets on. Requests belong to the scheduler: a policy only points.
// The order may depend on nothing but the calls made: no clock, no addresses.
class Policy {
 public:
  virtual ~Policy() = default;

  // A request that never ran joins.
  virtual void enqueue(Request& request) = 0;

  // A preempted request, or one whose start was undone, comes back: first within its class.
  virtual void requeue(Request& request) = 0;

  // The request to start next, or nullptr. Stays the same until the queue changes.
  virtual Request* front() = 0;

  // The front request starts to run: its rank is fixed from here on.
  virtual void start(Request& request) = 0;

  // A waiting request ended.
  virtual void remove(Request& request) = 0;

  // A request that ran has ended for good.
  virtual void ended(const Request& request) { static_cast<void>(request); }

  virtual int32_t size() const = 0;
  virtual std::string check_integrity() const = 0;
};

// Throws std::invalid_argument for an unknown name.
std::unique_ptr<Policy> make_policy(const SchedulerConfig& config);

// The families, each in its own file.
std::unique_ptr<Policy> make_keyed_policy(const SchedulerConfig& config);
std::unique_ptr<Policy> make_prefix_policy(const SchedulerConfig& config);
std::unique_ptr<Policy> make_fair_policy(const SchedulerConfig& config);

}  // namespace pagemill
