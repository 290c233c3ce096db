// Numbers as bytes: little-endian, whatever the machine is, at any address, also in constant evaluation.
#pragma once

#include <cstdint>

namespace tensorpull {

namespace detail {
template <class Byte>
constexpr std::uint64_t octet(Byte value) noexcept { return static_cast<unsigned char>(value); }
}  // namespace detail

// One expression each, not a loop: clang counts statements in constant evaluation, and compilers make one load of it.

/// The 2, 4 or 8 bytes at `p` as a number. `Byte`: std::byte or a character type.
template <class Byte>
constexpr std::uint64_t load_le16(const Byte* p) noexcept {
  return detail::octet(p[0]) | detail::octet(p[1]) << 8;
}
template <class Byte>
constexpr std::uint64_t load_le32(const Byte* p) noexcept {
  return detail::octet(p[0]) | detail::octet(p[1]) << 8 | detail::octet(p[2]) << 16 | detail::octet(p[3]) << 24;
}
template <class Byte>
constexpr std::uint64_t load_le64(const Byte* p) noexcept {
  return detail::octet(p[0]) | detail::octet(p[1]) << 8 | detail::octet(p[2]) << 16 | detail::octet(p[3]) << 24 | detail::octet(p[4]) << 32 |
         detail::octet(p[5]) << 40 | detail::octet(p[6]) << 48 | detail::octet(p[7]) << 56;
}

/// Writes the 8 bytes of `v` to `p`.
template <class Byte>
constexpr void store_le64(Byte* p, std::uint64_t v) noexcept {
  for (unsigned i = 0; i < 8; ++i) p[i] = static_cast<Byte>(v >> (8 * i) & 0xff);
}

}  // namespace tensorpull
