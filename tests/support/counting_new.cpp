// The program's own operator new: it counts for test::heap_now(), and fails when testing::failing_allocation says so.
#include "allocation_counter.hpp"

#include <tensorpull/testing/failing_allocation.hpp>

#include <malloc.h>
#include <cstdlib>
#include <new>

namespace {

constinit thread_local test::live_heap live{};

void* take(void* p) noexcept {
  if (p == nullptr) return nullptr;
  ++live.blocks;
  live.bytes += static_cast<std::int64_t>(malloc_usable_size(p));
  return p;
}
/// Out of line: the compiler would otherwise see `new` beside std::free and take it for a mistake.
[[gnu::noinline]] void give(void* p) noexcept {
  if (p == nullptr) return;
  --live.blocks;
  live.bytes -= static_cast<std::int64_t>(malloc_usable_size(p));
  std::free(p);
}
void* aligned(std::size_t n, std::align_val_t a) noexcept {
  const auto to = static_cast<std::size_t>(a);
  return take(std::aligned_alloc(to, (n + to - 1) / to * to));
}
using tensorpull::testing::failing_allocation;

}  // namespace

test::live_heap test::heap_now() noexcept { return live; }

void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  return failing_allocation::fails_now() ? nullptr : take(std::malloc(n));
}
void* operator new(std::size_t n) {
  if (void* const p = operator new(n, std::nothrow)) return p;
  throw std::bad_alloc();
}
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return failing_allocation::fails_now() ? nullptr : aligned(n, a);
}
void* operator new(std::size_t n, std::align_val_t a) {
  if (void* const p = operator new(n, a, std::nothrow)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { give(p); }
void operator delete(void* p, std::size_t) noexcept { give(p); }
void operator delete(void* p, std::align_val_t) noexcept { give(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { give(p); }
