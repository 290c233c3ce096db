// Counts this process's heap allocations, by standing in for malloc and its family: link heap_count.cpp to count. The tests have a counter of
// their own (tests/support/allocation_counter.hpp), since an example must build without them and reports live bytes, not failures.
#pragma once

#include <cstdint>

namespace federated {

struct heap_figures {
  std::uint64_t live_allocations;
  /// What the allocator set aside for the live ones (malloc_usable_size), at least what was asked for.
  std::uint64_t live_bytes;
  /// Since the process started; a realloc that succeeds counts as one more.
  std::uint64_t total_allocations;
  std::uint64_t total_bytes;
};

/// Exact when no other thread allocates meanwhile. All zero where heap_is_counted() says no.
heap_figures live_heap() noexcept;

/// False under a sanitizer, which has an allocator of its own, and without glibc.
bool heap_is_counted() noexcept;

}  // namespace federated
