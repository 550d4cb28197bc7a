// Who gives way when the cache is full, and how.
#include "scheduler.h"

namespace pagemill {

size_t Scheduler::victim(size_t after) const {
  // The last in line that has got on since it started; else the last in line at all.
  size_t last = running_.size();
  for (size_t at = running_.size() - 1; at > after; --at) {
    const Request* request = running_[at];
    if (request == nullptr || request->in_flight > 0) continue;
    if (request->known > request->known_at_start) return at;
    if (last == running_.size()) last = at;
  }
  return last;
}

void Scheduler::preempt(Plan& plan, Request& request) {
  ++counters_.preemptions;
  request.was_preempted = true;
  set_prefilling(request, false);
  register_blocks(request, nullptr);
  give_up_slot(request, plan.ended_slots);
  back_to_queue(request);
}

void Scheduler::back_to_queue(Request& request) {
  release_blocks(request);
  request.computed = 0;
  request.pending = 0;
  drop_drafts(request, 0);
  request.settle();
  request.shared_tail = request.untold = request.stale_table = false;
  ++request.epoch;
  queue(request);
  policy_->requeue(request);
}

}  // namespace pagemill
