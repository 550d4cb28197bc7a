// Large tables in large pages.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>

namespace pagemill {

// An allocator for vectors that are looked up all over the place: from 2 MiB on they ask for pages
// of that size, of which the processor keeps the addresses of far more at hand. A kernel that has
// none to give changes nothing but the time.
template <class T>
struct HugePages {
  using value_type = T;
  static constexpr size_t kPage = size_t{2} << 20;

  HugePages() = default;
  template <class U>
  HugePages(const HugePages<U>&) {}

  T* allocate(size_t count) {
    size_t bytes = count * sizeof(T);
    const bool large = bytes >= kPage;
    const size_t alignment = large ? kPage : alignof(std::max_align_t) > alignof(T)
                                                 ? alignof(std::max_align_t)
                                                 : alignof(T);
    bytes = (bytes + alignment - 1) / alignment * alignment;
    void* const memory = std::aligned_alloc(alignment, bytes);
    if (memory == nullptr) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
    if (large) madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t) { std::free(memory); }

  template <class U>
  bool operator==(const HugePages<U>&) const {
    return true;
  }
};

}  // namespace pagemill
