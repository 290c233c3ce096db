// Live heap allocations of a test program, by its own operator new and delete (heap.cpp, linked to the program).
#pragma once

#include <cstdint>

namespace test {

/// What this thread has allocated and not freed yet. Bytes are those that the allocator set aside. Also exact under sanitizers.
struct live_heap {
  std::int64_t blocks = 0;
  std::int64_t bytes = 0;

  friend bool operator==(const live_heap&, const live_heap&) noexcept = default;
};
live_heap heap_now() noexcept;

}  // namespace test
