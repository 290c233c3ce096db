// Elements as unsigned numbers in the order of their values, so that close elements differ by little.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/dtype.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace tensorpull::detail {

/// How an element's bytes are subtracted: as unsigned numbers of `width` bytes. `floating`: numbers with a sign bit are
/// ordered by value before, so that close numbers differ by little.
struct difference_element {
  std::size_t width;
  bool floating;
};
constexpr difference_element difference_element_of(dtype type) noexcept {
  switch (type) {
    case dtype::f16:
    case dtype::bf16: return {2, true};
    case dtype::f32:
    case dtype::c64: return {4, true};
    case dtype::f64: return {8, true};
    case dtype::i16:
    case dtype::u16: return {2, false};
    case dtype::i32:
    case dtype::u32: return {4, false};
    case dtype::i64:
    case dtype::u64: return {8, false};
    default: return {1, false};
  }
}

template <std::unsigned_integral U>
U load_element(const std::byte* at) noexcept {
  if constexpr (sizeof(U) == 1) return static_cast<U>(*at);
  else if constexpr (sizeof(U) == 2) return static_cast<U>(load_le16(at));
  else if constexpr (sizeof(U) == 4) return static_cast<U>(load_le32(at));
  else return load_le64(at);
}
template <std::unsigned_integral U>
void store_element(std::byte* at, U v) noexcept {
  for (std::size_t k = 0; k < sizeof(U); ++k) at[k] = static_cast<std::byte>(v >> (8 * k) & 0xff);
}

/// Bits of a floating number as a number in the same order, and back.
template <std::unsigned_integral U>
constexpr U in_order(U bits) noexcept {
  constexpr U top = static_cast<U>(U{1} << (8 * sizeof(U) - 1));
  const U negative = static_cast<U>(U{0} - (bits >> (8 * sizeof(U) - 1)));
  return static_cast<U>(bits ^ (negative | top));
}
template <std::unsigned_integral U>
constexpr U out_of_order(U v) noexcept {
  constexpr U top = static_cast<U>(U{1} << (8 * sizeof(U) - 1));
  const U negative = static_cast<U>((v >> (8 * sizeof(U) - 1)) - U{1});
  return static_cast<U>(v ^ (negative | top));
}
/// Small differences of both signs as small numbers, and back.
template <std::unsigned_integral U>
constexpr U zigzag(U d) noexcept {
  return static_cast<U>(static_cast<U>(d << 1) ^ static_cast<U>(U{0} - (d >> (8 * sizeof(U) - 1))));
}
template <std::unsigned_integral U>
constexpr U from_zigzag(U z) noexcept {
  return static_cast<U>((z >> 1) ^ static_cast<U>(U{0} - (z & U{1})));
}

/// The elements with the bits `word`.
template <std::unsigned_integral U, bool Floating>
struct bits_of {
  using word = U;
  /// From one element to another, and back. The closer they are, the smaller it is; 0: they are equal.
  static constexpr U difference(U from, U to) noexcept {
    if constexpr (Floating) from = in_order(from), to = in_order(to);
    return zigzag(static_cast<U>(to - from));
  }
  static constexpr U moved(U from, U difference) noexcept {
    if constexpr (Floating) return out_of_order(static_cast<U>(in_order(from) + from_zigzag(difference)));
    else return static_cast<U>(from + from_zigzag(difference));
  }
};
using element_u16 = bits_of<std::uint16_t, false>;
using element_f16 = bits_of<std::uint16_t, true>;
using element_u32 = bits_of<std::uint32_t, false>;
using element_f32 = bits_of<std::uint32_t, true>;
using element_u64 = bits_of<std::uint64_t, false>;
using element_f64 = bits_of<std::uint64_t, true>;
using element_u8 = bits_of<std::uint8_t, false>;

/// Calls f with the element type of a dtype.
template <class F>
void with_difference_element(dtype type, F&& f) noexcept {
  const difference_element e = difference_element_of(type);
  switch (e.width) {
    case 2: return e.floating ? f(element_f16{}) : f(element_u16{});
    case 4: return e.floating ? f(element_f32{}) : f(element_u32{});
    case 8: return e.floating ? f(element_f64{}) : f(element_u64{});
    default: return f(element_u8{});
  }
}

}  // namespace tensorpull::detail
