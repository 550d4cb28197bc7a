#include "policy.h"

#include <stdexcept>

namespace pagemill {

std::unique_ptr<Policy> make_policy(const SchedulerConfig& config) {
  const std::string& name = config.policy;
  if (name == "fcfs" || name == "static" || name == "priority" || name == "deadline") {
    return make_keyed_policy(config);
  }
  if (name == "prefix") return make_prefix_policy(config);
  if (name == "fair") return make_fair_policy(config);
  throw std::invalid_argument("policy '" + name +
                              "' is unknown: use fcfs, static, priority, deadline, prefix or fair");
}

}  // namespace pagemill
