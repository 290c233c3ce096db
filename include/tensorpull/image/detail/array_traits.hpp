// Arrays as members of a model: of scalars, which are one tensor, and of structs.
#pragma once

#include <tensorpull/core/dtype.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace tensorpull::detail {

/// An array of either kind, one dimension at a time.
template <class T>
struct array_traits {
  static constexpr bool is_array = false;
  using scalar = T;
  static constexpr std::size_t rank = 0;
};
template <class T, std::size_t N>
struct array_traits<T[N]> {
  static constexpr bool is_array = true;
  static constexpr std::size_t extent = N;
  using element = T;
  using scalar = typename array_traits<T>::scalar;
  static constexpr std::size_t rank = array_traits<T>::rank + 1;
};
template <class T, std::size_t N>
struct array_traits<std::array<T, N>> : array_traits<T[N]> {};
template <class T>
struct array_traits<std::array<T, 0>> {
  static constexpr bool is_array = true;
  static constexpr std::size_t extent = 0;
  using element = T;
  using scalar = typename array_traits<T>::scalar;
  static constexpr std::size_t rank = array_traits<T>::rank + 1;
};

/// A scalar or an array of scalars of any rank: one tensor.
template <class T>
concept tensor_member = tensor_scalar<typename array_traits<T>::scalar>;
template <class T>
concept array_member = array_traits<T>::is_array && !tensor_member<T>;
template <class T>
constexpr std::uint64_t* write_shape(std::uint64_t* to) noexcept {
  if constexpr (array_traits<T>::is_array) {
    *to = array_traits<T>::extent;
    return write_shape<typename array_traits<T>::element>(to + 1);
  }
  return to;
}
template <class T>
inline constexpr auto shape_of = [] {
  std::array<std::uint64_t, array_traits<T>::rank == 0 ? 1 : array_traits<T>::rank> shape{};
  write_shape<T>(shape.data());
  return shape;
}();

/// Not sizeof: an std::array of no elements has a byte.
template <class T>
constexpr std::uint64_t tensor_bytes() noexcept {
  std::uint64_t n = sizeof(typename array_traits<T>::scalar);
  for (std::size_t i = 0; i < array_traits<T>::rank; ++i) n *= shape_of<T>[i];
  return n;
}

}  // namespace tensorpull::detail
