// A program's definitions of malloc and its family replace glibc's, for libraries too. These count, and then call
// glibc's own. They run before any constructor, so the counters are constant-initialised.
#include "heap_count.hpp"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>

#if !defined(__GLIBC__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FEDERATED_NO_HEAP_COUNT
#elif defined(__has_feature)  // clang announces its sanitizers here
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define FEDERATED_NO_HEAP_COUNT
#endif
#endif

#if !defined(FEDERATED_NO_HEAP_COUNT)

#include <malloc.h>

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void* __libc_valloc(std::size_t);
void* __libc_pvalloc(std::size_t);
void __libc_free(void*);
}

namespace {

constinit std::atomic<std::uint64_t> live_allocations{0};
constinit std::atomic<std::uint64_t> live_bytes{0};
constinit std::atomic<std::uint64_t> total_allocations{0};
constinit std::atomic<std::uint64_t> total_bytes{0};

void add(std::atomic<std::uint64_t>& counter, std::uint64_t n) noexcept {
  counter.fetch_add(n, std::memory_order_relaxed);
}

void* gained(void* memory) noexcept {
  if (memory == nullptr) return nullptr;
  const std::uint64_t bytes = malloc_usable_size(memory);
  add(live_allocations, 1);
  add(live_bytes, bytes);
  add(total_allocations, 1);
  add(total_bytes, bytes);
  return memory;
}

void lost(std::uint64_t bytes) noexcept {
  live_allocations.fetch_sub(1, std::memory_order_relaxed);
  live_bytes.fetch_sub(bytes, std::memory_order_relaxed);
}

bool is_power_of_two(std::size_t n) noexcept { return n != 0 && (n & (n - 1)) == 0; }

}  // namespace

extern "C" {

void* malloc(std::size_t size) noexcept { return gained(__libc_malloc(size)); }

void* calloc(std::size_t count, std::size_t size) noexcept { return gained(__libc_calloc(count, size)); }

void* realloc(void* memory, std::size_t size) noexcept {
  if (memory == nullptr) return gained(__libc_realloc(nullptr, size));
  const std::uint64_t before = malloc_usable_size(memory);
  void* const moved = __libc_realloc(memory, size);
  // A realloc that fails keeps the old block; a realloc to 0 bytes frees it and returns nullptr.
  if (moved != nullptr || size == 0) lost(before);
  return gained(moved);
}

void free(void* memory) noexcept {
  if (memory == nullptr) return;
  lost(malloc_usable_size(memory));
  __libc_free(memory);
}

void* memalign(std::size_t alignment, std::size_t size) noexcept { return gained(__libc_memalign(alignment, size)); }

void* aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
  return gained(__libc_memalign(alignment, size));
}

int posix_memalign(void** memory, std::size_t alignment, std::size_t size) noexcept {
  if (!is_power_of_two(alignment) || alignment % sizeof(void*) != 0) return EINVAL;
  const int before = errno;  // POSIX: posix_memalign returns its error and does not change errno
  void* const made = gained(__libc_memalign(alignment, size));
  errno = before;
  if (made == nullptr) return ENOMEM;
  *memory = made;
  return 0;
}

void* valloc(std::size_t size) noexcept { return gained(__libc_valloc(size)); }

void* pvalloc(std::size_t size) noexcept { return gained(__libc_pvalloc(size)); }

}  // extern "C"

namespace federated {

heap_figures live_heap() noexcept {
  return {live_allocations.load(std::memory_order_relaxed), live_bytes.load(std::memory_order_relaxed),
          total_allocations.load(std::memory_order_relaxed), total_bytes.load(std::memory_order_relaxed)};
}

bool heap_is_counted() noexcept { return true; }

}  // namespace federated

#else

namespace federated {

heap_figures live_heap() noexcept { return {}; }

bool heap_is_counted() noexcept { return false; }

}  // namespace federated

#endif
