// Makes one heap allocation of this thread fail. The program's own `operator new` asks whether to fail; this header
// does not replace `operator new`, because the program may have one already.
#pragma once

#include <cstdint>

namespace tensorpull::testing {

/// Counts the thread's allocations during its lifetime; one object at a time in a thread. The program's operator new
/// has to ask it:
///   void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return failing_allocation::fails_now() ?
///   nullptr : std::malloc(n); }
class failing_allocation {
 public:
  /// The `nth` allocation from now on fails (1: the next one), and only that one; 0: none.
  explicit failing_allocation(std::uint64_t nth) noexcept {
    state().left = nth;
    state().count = 0;
    state().counting = true;
  }
  failing_allocation(const failing_allocation&) = delete;
  failing_allocation& operator=(const failing_allocation&) = delete;
  ~failing_allocation() { state() = {}; }

  /// How many allocations there were since it was made, the failed one included.
  std::uint64_t count() const noexcept { return state().count; }
  /// Whether the allocation that had to fail has been tried.
  bool happened() const noexcept { return state().failed; }

  /// For `operator new`: counts an allocation, and returns whether it has to fail.
  static bool fails_now() noexcept {
    counters& s = state();
    if (!s.counting) return false;
    ++s.count;
    if (s.left == 0 || --s.left != 0) return false;
    return s.failed = true;
  }

 private:
  struct counters {
    std::uint64_t left = 0, count = 0;
    bool counting = false, failed = false;
  };
  static counters& state() noexcept {
    thread_local counters c;
    return c;
  }
};

}  // namespace tensorpull::testing
