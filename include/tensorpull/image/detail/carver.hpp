// Several arrays in one block of memory. The code that allocates the block orders them by alignment, the strictest
// first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

namespace tensorpull::detail {

/// Hands out consecutive arrays of a block that is large enough for all of them.
class carver {
 public:
  explicit carver(std::byte* at) noexcept : at_(at) {}
  template <class T>
  T* take(std::size_t n) noexcept {
    T* const first = reinterpret_cast<T*>(std::exchange(at_, at_ + n * sizeof(T)));
    std::uninitialized_value_construct_n(first, n);
    return std::launder(first);
  }
  std::string_view copy(std::string_view text) noexcept {
    std::copy(text.begin(), text.end(), reinterpret_cast<char*>(at_));
    return {reinterpret_cast<const char*>(std::exchange(at_, at_ + text.size())), text.size()};
  }

 private:
  std::byte* at_;
};

}  // namespace tensorpull::detail
