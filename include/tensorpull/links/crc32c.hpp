// CRC32C (Castagnoli) for frames on a line, portable, with a table of 1 KiB or of 64 bytes. Hosts that compute it with
// each chunk use integrity/crc32c.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

namespace detail {

/// The CRC of each byte: the polynomial 0x1edc6f41, with its bits reversed.
inline constexpr auto crc32c_table = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    table[i] = crc;
  }
  return table;
}();

/// The CRC32C of `before` and `bytes`, as RFC 3720 defines it (initial value and final complement included), where
/// `crc` is that of `before`; 0: nothing is before. One look-up for each byte.
constexpr std::uint32_t crc32c_of(std::span<const std::byte> bytes, std::uint32_t crc = 0) noexcept {
  crc = ~crc;
  for (const std::byte b : bytes) crc = crc >> 8 ^ crc32c_table[(crc ^ static_cast<std::uint32_t>(b)) & 0xff];
  return ~crc;
}


/// The same for each half of a byte.
inline constexpr auto crc32c_halves = [] {
  std::array<std::uint32_t, 16> table{};
  for (std::uint32_t i = 0; i < 16; ++i) table[i] = crc32c_table[i << 4];
  return table;
}();

}  // namespace detail

/// The CRC of each byte out of a table of 1 KiB: one look-up for each.
struct crc32c_fast {
  /// As detail::crc32c_of.
  static constexpr std::uint32_t of(std::span<const std::byte> bytes, std::uint32_t crc = 0) noexcept {
    return detail::crc32c_of(bytes, crc);
  }
};
/// The same CRC out of a table of 64 bytes: two look-ups for each byte.
struct crc32c_small {
  /// As detail::crc32c_of.
  static constexpr std::uint32_t of(std::span<const std::byte> bytes, std::uint32_t crc = 0) noexcept {
    crc = ~crc;
    for (const std::byte b : bytes) {
      crc ^= static_cast<std::uint32_t>(b);
      crc = crc >> 4 ^ detail::crc32c_halves[crc & 15];
      crc = crc >> 4 ^ detail::crc32c_halves[crc & 15];
    }
    return ~crc;
  }
};

}  // namespace tensorpull
