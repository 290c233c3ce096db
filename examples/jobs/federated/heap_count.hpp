// Counts this process's heap allocations by replacing malloc and its family: link heap_count.cpp to count. The tests
// have their own counter (tests/support/allocation_counter.hpp): an example must build without the tests, and it
// reports live bytes, which they do not need.
#pragma once

#include <cstdint>

namespace federated {

struct heap_figures {
  std::uint64_t live_allocations;
  /// The sizes of the live blocks (malloc_usable_size), which are at least what was asked for.
  std::uint64_t live_bytes;
  /// Since the process started; a realloc that succeeds counts as one more.
  std::uint64_t total_allocations;
  std::uint64_t total_bytes;
};

/// Exact if no other thread allocates meanwhile. All zero if heap_is_counted() is false.
heap_figures live_heap() noexcept;

/// False with a sanitizer, which has its own allocator, and without glibc.
bool heap_is_counted() noexcept;

}  // namespace federated
