// The digits as they lie in the device's flash, behind its program: those that everybody measures the accuracy with,
// then the device's own share.
#pragma once

#include "mlp.hpp"

#include <cstddef>
#include <cstdint>

namespace microcontroller {

/// Where the partition begins, and how long it is at most. The linker script keeps the program below.
inline constexpr std::uint32_t digits_address = 0x1'0000, digits_bytes = 0x3'0000;

/// The first 16 bytes of the partition, least significant byte first; digits follow.
struct digits_header {
  static constexpr std::uint32_t expected_magic = 0x7364'6774;  ///< "tgds" in this order
  std::uint32_t magic;
  std::uint32_t held_out;  ///< digits that nobody trains with
  std::uint32_t share;     ///< digits that the device trains with
  std::uint32_t checksum;  ///< of the bytes behind the header: digits_checksum()
};
static_assert(sizeof(digits_header) == 16);

/// FNV-1a.
constexpr std::uint32_t digits_checksum(const std::uint8_t* bytes, std::size_t count) noexcept {
  std::uint32_t h = 0x811c'9dc5;
  for (std::size_t i = 0; i < count; ++i) h = (h ^ bytes[i]) * 0x0100'0193;
  return h;
}

}  // namespace microcontroller
