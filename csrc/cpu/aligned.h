// Memory for vectors whose parts start where a cache line does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace pagemill {

// A load of 64 bytes that crosses a cache line is two loads. Large vectors ask for huge pages: of
// small ones a matrix has more than the processor remembers the places of.
template <typename T>
struct LineAllocator {
  using value_type = T;
  static constexpr size_t kLine = 64, kHugePage = size_t{1} << 21;

  LineAllocator() = default;
  template <typename U>
  LineAllocator(const LineAllocator<U>&) {}

  T* allocate(size_t count) {
    const size_t size = count * sizeof(T);
    void* memory = ::operator new(size, alignment(size));
#if defined(__linux__)
    if (size >= kHugePage) madvise(memory, size / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t count) {
    ::operator delete(memory, alignment(count * sizeof(T)));
  }
  friend bool operator==(const LineAllocator&, const LineAllocator&) { return true; }

 private:
  static std::align_val_t alignment(size_t size) {
    return std::align_val_t{size >= kHugePage ? kHugePage : kLine};
  }
};

template <typename T>
using AlignedVector = std::vector<T, LineAllocator<T>>;

// Makes room for `size` elements in memory that is kept from use to use, and so never shrinks.
template <typename T, typename Allocator>
void grow(std::vector<T, Allocator>& buffer, int64_t size) {
  if (static_cast<int64_t>(buffer.size()) < size) buffer.resize(static_cast<size_t>(size));
}

}  // namespace pagemill
