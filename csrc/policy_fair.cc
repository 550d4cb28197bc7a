// Tenants share the engine by tokens: deficit round robin.
//
// Source: M. Shreedhar, G. Varghese, "Efficient fair queueing using deficit round robin", 1995.
#include <deque>
#include <list>
#include <map>

#include "policy.h"

namespace pagemill {
namespace {

// Each tenant has a queue and a balance of tokens. The turn goes round the tenants with waiting
// requests; a turn adds `quantum` to the balance, and a request starts when the balance covers
// its prompt. Output tokens are charged when a request ends, so a tenant with long answers waits
// longer for its next turn. A request that comes back has paid already and stands first.
class FairPolicy final : public Policy {
 public:
  explicit FairPolicy(int32_t quantum) : quantum_(quantum) {}

  void enqueue(Request& request) override {
    request.rank = {0, next_sequence_++};
    request.charged = false;
    insert(request);
  }

  void requeue(Request& request) override { insert(request); }

  Request* front() override {
    if (size_ == 0) return nullptr;
    while (true) {
      Tenant& tenant = tenants_.at(*turn_);
      Request* request = *tenant.queue.begin();
      if (request->charged || tenant.balance >= request->known) return request;
      pass_turn();
    }
  }

  void start(Request& request) override {
    Tenant& tenant = tenants_.at(request.tenant);
    if (!request.charged) {
      tenant.balance -= request.known;
      request.charged = true;
      request.rank = {0, next_start_++};
    }
    take(tenant, request);
  }

  void remove(Request& request) override { take(tenants_.at(request.tenant), request); }

  void ended(const Request& request) override {
    const auto tenant = tenants_.find(request.tenant);
    if (tenant != tenants_.end()) tenant->second.balance -= request.known - request.prompt_len;
  }

  int32_t size() const override { return size_; }

  std::string check_integrity() const override {
    int32_t queued = 0;
    for (const auto& [id, tenant] : tenants_) {
      if (tenant.queue.empty()) return "a tenant without requests is kept";
      queued += static_cast<int32_t>(tenant.queue.size());
    }
    if (queued != size_) return "the fair queue's size is wrong";
    if (round_.size() != tenants_.size()) return "the round doesn't visit each tenant once";
    return "";
  }

 private:
  struct Tenant {
    int64_t balance = 0;
    std::deque<Request*> queue;
    std::list<int64_t>::iterator place;  // in the round
  };

  void insert(Request& request) {
    const auto [found, is_new] = tenants_.try_emplace(request.tenant);
    Tenant& tenant = found->second;
    if (is_new) {
      tenant.place = round_.insert(round_.end(), request.tenant);
      if (round_.size() == 1) turn_ = round_.begin();
    }
    if (request.charged) {
      auto at = tenant.queue.begin();
      while (at != tenant.queue.end() && (*at)->charged && (*at)->rank < request.rank) ++at;
      tenant.queue.insert(at, &request);
    } else {
      tenant.queue.push_back(&request);
    }
    ++size_;
  }

  void take(Tenant& tenant, Request& request) {
    tenant.queue.erase(std::find(tenant.queue.begin(), tenant.queue.end(), &request));
    --size_;
    if (!tenant.queue.empty()) return;
    // An idle tenant keeps no balance: fairness is among those that have work.
    if (turn_ == tenant.place) pass_turn();
    const bool last = round_.size() == 1;
    round_.erase(tenant.place);
    tenants_.erase(request.tenant);
    if (last) turn_ = round_.end();
  }

  void pass_turn() {
    if (++turn_ == round_.end()) turn_ = round_.begin();
    tenants_.at(*turn_).balance += quantum_;
  }

  int64_t quantum_;
  std::map<int64_t, Tenant> tenants_;  // those with waiting requests
  std::list<int64_t> round_;
  std::list<int64_t>::iterator turn_ = round_.end();
  int32_t size_ = 0;
  int64_t next_sequence_ = 0;
  int64_t next_start_ = 0;
};

}  // namespace

std::unique_ptr<Policy> make_fair_policy(const SchedulerConfig& config) {
  return std::make_unique<FairPolicy>(config.fair_quantum);
}

}  // namespace pagemill
