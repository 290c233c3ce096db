// Move assignment of classes that own something.
#pragma once

#include <new>
#include <type_traits>
#include <utility>

namespace tensorpull::detail {

/// Move assignment made of the destructor and the move constructor. Assignment to itself does nothing.
template <class T>
T& replace(T& to, T&& from) noexcept {
  static_assert(std::is_nothrow_move_constructible_v<T>);
  if (__builtin_addressof(to) == __builtin_addressof(from)) return to;
  to.~T();
  return *::new (static_cast<void*>(__builtin_addressof(to))) T(std::move(from));
}

}  // namespace tensorpull::detail
