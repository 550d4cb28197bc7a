// Requests of one prompt prefix run together, so that its blocks are computed once and stay hot.
#include <unordered_map>

#include "policy_keyed.h"

namespace pagemill {
namespace {

// A prefix's first request opens a ticket at its own place in line; later requests of the prefix
// join it there, `group_size` at most. The next one opens a new ticket at the end of the line:
// a prefix that never runs dry can't keep the others waiting.
class PrefixPolicy final : public KeyedPolicy {
 public:
  explicit PrefixPolicy(int32_t group_size) : group_size_(group_size) {}

  void start(Request& request) override {
    KeyedPolicy::start(request);
    leave(request);
  }

  void remove(Request& request) override {
    KeyedPolicy::remove(request);
    leave(request);
  }

  void requeue(Request& request) override {
    KeyedPolicy::requeue(request);
    const auto ticket = tickets_.find(request.prefix_key);
    if (ticket != tickets_.end() && ticket->second.number == request.group) {
      ++ticket->second.waiting;
    }
  }

 private:
  struct Ticket {
    int64_t number;  // sequence of the request that opened it
    int32_t taken;   // requests that ever joined
    int32_t waiting;
  };

  // The last block before the tenant's own part, or else the first block.
  static uint64_t prefix(const Request& request) {
    const size_t block_size =
        static_cast<size_t>(request.next_hash_at) / (request.hashes.size() + 1);
    const size_t shared = static_cast<size_t>(request.salt_from) / block_size;
    const size_t last = shared == 0 ? 0 : std::min(shared, request.hashes.size()) - 1;
    return request.hashes[last].key;
  }

  double key(Request& request, int64_t sequence) override {
    if (request.hashes.empty()) {  // too short to share anything
      request.group = sequence;
      return static_cast<double>(sequence);
    }
    request.prefix_key = prefix(request);
    const auto opened = tickets_.try_emplace(request.prefix_key, Ticket{sequence, 0, 0});
    Ticket& ticket = opened.first->second;
    if (ticket.taken == group_size_) ticket = {sequence, 0, 0};
    ++ticket.taken;
    ++ticket.waiting;
    request.group = ticket.number;
    return static_cast<double>(ticket.number);
  }

  void leave(const Request& request) {
    const auto ticket = tickets_.find(request.prefix_key);
    if (ticket == tickets_.end() || ticket->second.number != request.group) return;
    if (--ticket->second.waiting == 0) tickets_.erase(ticket);
  }

  int32_t group_size_;
  std::unordered_map<uint64_t, Ticket> tickets_;  // of prefixes with requests waiting
};

}  // namespace

std::unique_ptr<Policy> make_prefix_policy(const SchedulerConfig& config) {
  return std::make_unique<PrefixPolicy>(config.group_size);
}

}  // namespace pagemill
