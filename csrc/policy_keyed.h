// A waiting queue ordered by rank.
#pragma once

#include <set>

#include "policy.h"

namespace pagemill {

// Policies whose order is a number fixed on arrival need only say which: override key().
class KeyedPolicy : public Policy {
 public:
  void enqueue(Request& request) override;
  void requeue(Request& request) override;
  Request* front() override;
  void start(Request& request) override;
  void remove(Request& request) override;
  int32_t size() const override { return static_cast<int32_t>(queue_.size()); }
  std::string check_integrity() const override;

 protected:
  // Lower goes first; ties go by arrival. `sequence` counts arrivals.
  virtual double key(Request& request, int64_t sequence) = 0;

 private:
  struct ByRank {
    bool operator()(const Request* a, const Request* b) const { return a->rank < b->rank; }
  };

  std::set<Request*, ByRank> queue_;
  int64_t next_sequence_ = 0;
};

}  // namespace pagemill
