// The heap as tests see it, at two levels. `allocation_watch` counts what the whole process asks malloc for, so that
// the allocations of other libraries count, too. `heap_now` and testing::failing_allocation see the program's own
// operator new (counting_new.cpp, linked to the programs that use them): only an allocation that C++ code makes can be
// told to fail. Include it in one or more files of a test program.
#pragma once

#include "support/sanitizers.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

#if defined(TENSORPULL_TEST_SANITIZED)
// declared here, since not every compiler package brings <sanitizer/allocator_interface.h>
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, std::size_t),
                                                         void (*)(const volatile void*));
#else
#include <cerrno>
extern "C" void* __libc_malloc(std::size_t);
extern "C" void* __libc_calloc(std::size_t, std::size_t);
extern "C" void* __libc_realloc(void*, std::size_t);
extern "C" void* __libc_memalign(std::size_t, std::size_t);
#endif

namespace test {

namespace detail {
inline std::atomic<std::uint64_t> allocations{0};
inline std::atomic<std::uint64_t> largest{0};
inline void note_allocation(std::size_t n) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  std::uint64_t seen = largest.load(std::memory_order_relaxed);
  while (seen < n && !largest.compare_exchange_weak(seen, n, std::memory_order_relaxed)) {
  }
}
#if defined(TENSORPULL_TEST_SANITIZED)
inline void on_malloc(const volatile void*, std::size_t n) { note_allocation(n); }
inline void on_free(const volatile void*) {}
inline const int hooked = __sanitizer_install_malloc_and_free_hooks(&on_malloc, &on_free);
#endif
}  // namespace detail

/// What was allocated since it was made, in all threads. malloc is interposed; under a sanitizer its own hook is used.
class allocation_watch {
 public:
  allocation_watch() noexcept : start_(detail::allocations.load()) { detail::largest.store(0); }
  std::uint64_t count() const noexcept { return detail::allocations.load() - start_; }
  std::uint64_t largest() const noexcept { return detail::largest.load(); }

 private:
  std::uint64_t start_;
};
/// Allocations of the process since it began.
inline std::uint64_t allocations_so_far() noexcept { return detail::allocations.load(); }

/// What this thread has allocated with operator new and not freed yet. Bytes are those that the allocator set aside.
/// Also exact under sanitizers.
struct live_heap {
  std::int64_t blocks = 0;
  std::int64_t bytes = 0;

  friend bool operator==(const live_heap&, const live_heap&) noexcept = default;
};
/// Needs counting_new.cpp.
live_heap heap_now() noexcept;

}  // namespace test

#if !defined(TENSORPULL_TEST_SANITIZED)
// weak: the definitions of several files of one program are one
extern "C" __attribute__((weak)) void* malloc(std::size_t n) noexcept {
  test::detail::note_allocation(n);
  return __libc_malloc(n);
}
extern "C" __attribute__((weak)) void* calloc(std::size_t n, std::size_t m) noexcept {
  test::detail::note_allocation(n * m);
  return __libc_calloc(n, m);
}
extern "C" __attribute__((weak)) void* realloc(void* p, std::size_t n) noexcept {
  test::detail::note_allocation(n);
  return __libc_realloc(p, n);
}
extern "C" __attribute__((weak)) void* aligned_alloc(std::size_t a, std::size_t n) noexcept {
  test::detail::note_allocation(n);
  return __libc_memalign(a, n);
}
extern "C" __attribute__((weak)) int posix_memalign(void** p, std::size_t a, std::size_t n) noexcept {
  test::detail::note_allocation(n);
  *p = __libc_memalign(a, n);
  return *p != nullptr ? 0 : ENOMEM;
}
#endif
