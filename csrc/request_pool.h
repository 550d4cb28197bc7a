// Where requests live.
#pragma once

#include <memory>
#include <vector>

#include "request.h"

namespace pagemill {

// Hands out requests and takes them back. They stand side by side in slabs, so that a step which
// goes through thousands of them stays within few pages of memory, and keep the room that their
// vectors have grown. Slabs live as long as the pool. One thread at a time.
class RequestPool {
 public:
  // Of requests given back, `most_roomy` keep their vectors' room.
  explicit RequestPool(size_t most_roomy) : most_roomy_(most_roomy) {}
  ~RequestPool();
  RequestPool(const RequestPool&) = delete;
  RequestPool& operator=(const RequestPool&) = delete;

  // A request as if new.
  Request& take();

  // The request must be the pool's, and nobody may point to it any more.
  void give_back(Request& request);

 private:
  static constexpr size_t kSlab = 64;

  size_t most_roomy_;
  std::vector<std::unique_ptr<Request[]>> slabs_;
  std::vector<Request*> roomy_;
  std::vector<Request*> bare_;
};

}  // namespace pagemill
