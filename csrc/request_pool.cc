#include "request_pool.h"

#include <utility>

// AddressSanitizer finds pointers to requests that were given back.
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) \
  (static_cast<void>(address), static_cast<void>(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) \
  (static_cast<void>(address), static_cast<void>(size))
#endif

namespace pagemill {

RequestPool::~RequestPool() {
  for (const auto& slab : slabs_) {
    ASAN_UNPOISON_MEMORY_REGION(slab.get(), kSlab * sizeof(Request));
  }
}

Request& RequestPool::take() {
  if (roomy_.empty() && bare_.empty()) {
    Request* const slab = slabs_.emplace_back(std::make_unique<Request[]>(kSlab)).get();
    // Handed out in the order of their addresses.
    for (size_t i = kSlab; i-- > 0;) bare_.push_back(slab + i);
  }
  std::vector<Request*>& from = roomy_.empty() ? bare_ : roomy_;
  Request* const request = from.back();
  from.pop_back();
  ASAN_UNPOISON_MEMORY_REGION(request, sizeof(Request));
  return *request;
}

void RequestPool::give_back(Request& request) {
  const bool keeps_room = roomy_.size() < most_roomy_;
  Request blank;
  if (keeps_room) request.give_room(blank);
  request = std::move(blank);
  (keeps_room ? roomy_ : bare_).push_back(&request);
  ASAN_POISON_MEMORY_REGION(&request, sizeof(Request));
}

}  // namespace pagemill
