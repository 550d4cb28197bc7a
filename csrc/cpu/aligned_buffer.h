// Memory that begins on a cache line and only grows.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

namespace pagemill {

// For numbers that kernels load by whole lines. Contents are lost when it grows.
template <typename Number>
class AlignedBuffer {
 public:
  Number* data() { return memory_.get(); }
  const Number* data() const { return memory_.get(); }

  // Makes room for `size` numbers; new memory is zeros.
  void reserve(int64_t size) {
    if (size <= size_) return;
    memory_.reset(new (std::align_val_t{kLine}) Number[static_cast<size_t>(size)]());
    size_ = size;
  }

 private:
  static constexpr size_t kLine = 64;
  struct Free {
    void operator()(Number* memory) const { operator delete[](memory, std::align_val_t{kLine}); }
  };

  std::unique_ptr<Number[], Free> memory_;
  int64_t size_ = 0;
};

}  // namespace pagemill
