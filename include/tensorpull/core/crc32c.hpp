// CRC32C (Castagnoli), portable: with a table of 1 KiB or of 64 bytes, and as a hash of chunks. A CRC of 32 bits finds
// every burst of up to 32 bits, and misses a random fault with probability 2^-32: too often for the version of an
// image, which stays XXH3-64.
#pragma once

#include <tensorpull/core/digest_kind.hpp>

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

/// The same for each half of a byte.
inline constexpr auto crc32c_halves = [] {
  std::array<std::uint32_t, 16> table{};
  for (std::uint32_t i = 0; i < 16; ++i) table[i] = crc32c_table[i << 4];
  return table;
}();

}  // namespace detail

/// CRC32C out of a table of 1 KiB: one look-up for each byte.
struct crc32c_fast {
  /// The CRC32C of `before` and `bytes`, as RFC 3720 defines it (initial value and final complement included). `crc` is
  /// that of `before`; 0: nothing is before.
  static constexpr std::uint32_t of(std::span<const std::byte> bytes, std::uint32_t crc = 0) noexcept {
    crc = ~crc;
    for (const std::byte b : bytes) crc = crc >> 8 ^ detail::crc32c_table[(crc ^ static_cast<std::uint32_t>(b)) & 0xff];
    return ~crc;
  }
};
/// CRC32C out of a table of 64 bytes: two look-ups for each byte.
struct crc32c_small {
  /// As crc32c_fast's.
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

/// CRC32C as a hash of chunks (integrity/concept.hpp). `Crc`: crc32c_small for a small machine, or crc32c_fast.
template <class Crc>
class basic_crc32c {
 public:
  static constexpr digest_kind kind = digest_kind::crc32c;  ///< as integrity policies name it

  /// Forgets all bytes.
  constexpr void reset() noexcept { crc_ = 0; }
  /// Adds bytes.
  constexpr void update(std::span<const std::byte> bytes) noexcept { crc_ = Crc::of(bytes, crc_); }
  /// Of all bytes so far, in the low 32 bits.
  constexpr std::uint64_t digest() const noexcept { return crc_; }

 private:
  std::uint32_t crc_ = 0;
};

}  // namespace tensorpull
