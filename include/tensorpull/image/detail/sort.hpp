// A sort for arrays that must stay where they are and move together: in place, O(n log n) at worst, no recursion, no
// heap memory.
#pragma once

#include <cstddef>
#include <utility>

namespace tensorpull::detail {

/// Heap sort of the indices [0, n). before(i, j): whether element i must stand before j; exchange(i, j) swaps them.
template <class Before, class Exchange>
constexpr void sort_in_place(std::size_t n, Before before, Exchange exchange) {
  const auto sift_down = [&](std::size_t root, std::size_t end) {
    for (std::size_t child; (child = 2 * root + 1) < end; root = child) {
      if (child + 1 < end && before(child, child + 1)) ++child;
      if (!before(root, child)) return;
      exchange(root, child);
    }
  };
  for (std::size_t i = n / 2; i-- > 0;) sift_down(i, n);
  for (std::size_t end = n; end-- > 1;) {
    exchange(0, end);
    sift_down(0, end);
  }
}

}  // namespace tensorpull::detail
