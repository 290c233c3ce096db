// Numbers as little-endian bytes, whatever the machine's own order is, at any address, also in constant evaluation.
#pragma once

#include <bit>
#include <cstdint>

namespace tensorpull {

/// Whether this machine has its numbers in memory as an image has them, the least significant byte first.
inline constexpr bool little_endian_machine = std::endian::native == std::endian::little;
static_assert(little_endian_machine || std::endian::native == std::endian::big,
              "tensorpull: the bytes of a number are in ascending or in descending order");

namespace detail {
template <class Byte>
constexpr std::uint64_t octet(Byte value) noexcept {
  return static_cast<unsigned char>(value);
}
}  // namespace detail

// Each is one expression and not a loop: clang limits the steps of constant evaluation, and compilers make one load of
// the expression.

/// The 2 bytes at `p` as a number. `Byte`: std::byte or a character type.
template <class Byte>
constexpr std::uint64_t load_le16(const Byte* p) noexcept {
  return detail::octet(p[0]) | detail::octet(p[1]) << 8;
}
/// The 4 bytes at `p` as a number.
template <class Byte>
constexpr std::uint64_t load_le32(const Byte* p) noexcept {
  return detail::octet(p[0]) | detail::octet(p[1]) << 8 | detail::octet(p[2]) << 16 | detail::octet(p[3]) << 24;
}
/// The 8 bytes at `p` as a number.
template <class Byte>
constexpr std::uint64_t load_le64(const Byte* p) noexcept {
  return detail::octet(p[0]) | detail::octet(p[1]) << 8 | detail::octet(p[2]) << 16 | detail::octet(p[3]) << 24 |
         detail::octet(p[4]) << 32 | detail::octet(p[5]) << 40 | detail::octet(p[6]) << 48 | detail::octet(p[7]) << 56;
}

/// Writes `v` to the 8 bytes at `p`.
template <class Byte>
constexpr void store_le64(Byte* p, std::uint64_t v) noexcept {
  for (unsigned i = 0; i < 8; ++i) p[i] = static_cast<Byte>(v >> (8 * i) & 0xff);
}

}  // namespace tensorpull
