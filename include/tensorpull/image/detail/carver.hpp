// Several arrays in one block of memory. The code that allocates the block orders them by alignment, the strictest
// first.
#pragma once

#include <cstddef>
#include <cstring>
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
    for (std::size_t i = 0; i < n; ++i) ::new (static_cast<void*>(first + i)) T();
    return std::launder(first);
  }
  std::string_view copy(std::string_view text) noexcept {
    if (!text.empty()) std::memcpy(at_, text.data(), text.size());
    return {reinterpret_cast<const char*>(std::exchange(at_, at_ + text.size())), text.size()};
  }

 private:
  std::byte* at_;
};

}  // namespace tensorpull::detail
