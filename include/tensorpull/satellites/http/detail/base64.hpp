// Base64 with its padding (RFC 4648).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tensorpull::detail {

inline constexpr std::string_view base64_digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Calls `put` with each character of `count` bytes in base64; `at(i)` is byte i. So bytes that are scattered, or
/// secret, need not be copied first.
template <class At, class Put>
constexpr void put_base64(std::size_t count, At at, Put put) noexcept(noexcept(put('='))) {
  for (std::size_t i = 0; i < count; i += 3) {
    std::uint32_t three = 0;
    for (std::size_t k = 0; k < 3; ++k)
      three = three << 8 | (i + k < count ? static_cast<std::uint32_t>(static_cast<unsigned char>(at(i + k))) : 0);
    for (std::size_t d = 0; d < 4; ++d) put(i + d > count ? '=' : base64_digits[three >> (18 - 6 * d) & 63]);
  }
}

inline std::string to_base64(std::string_view bytes) {
  std::string out;
  put_base64(bytes.size(), [&](std::size_t i) { return bytes[i]; }, [&](char c) { out += c; });
  return out;
}

/// Reads exactly these bytes. False: the text has another length, other characters, or bits that no encoder sets.
constexpr bool from_base64(std::string_view text, std::span<std::byte> out) noexcept {
  if (text.size() != (out.size() + 2) / 3 * 4) return false;
  const std::size_t digits = (out.size() * 4 + 2) / 3;
  if (text.substr(digits) != std::string_view("==").substr(0, text.size() - digits)) return false;
  std::uint32_t bits = 0;
  unsigned held = 0;
  std::size_t made = 0;
  for (const char c : text.substr(0, digits)) {
    const std::size_t value = base64_digits.find(c);
    if (value == base64_digits.npos) return false;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    out[made++] = static_cast<std::byte>(bits >> held & 0xff);
  }
  return (bits & ((1u << held) - 1)) == 0;
}

}  // namespace tensorpull::detail
