// Identifiers: of what an owner publishes, and of a recipient.
#pragma once

#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/std/optional.hpp>

#include <array>
#include <cstdint>
#include <string_view>

namespace tensorpull {

/// The ID of a reference: two 64-bit words on the wire, 32 lower-case hexadecimal digits in print. All zero means
/// "none".
struct ref_id {
  /// the first 16 of its 32 digits
  std::uint64_t high = 0;
  /// the last 16
  std::uint64_t low = 0;

  friend constexpr bool operator==(const ref_id&, const ref_id&) noexcept = default;
  constexpr explicit operator bool() const noexcept { return (high | low) != 0; }
};

/// The 32 digits of an ID, without a terminating zero; view them with std::string_view{digits.data(), digits.size()}.
constexpr std::array<char, 32> to_digits(const ref_id& id) noexcept {
  constexpr std::string_view hex = "0123456789abcdef";
  std::array<char, 32> digits{};
  for (unsigned i = 0; i < 16; ++i) {
    digits[i] = hex[(id.high >> (60 - 4 * i)) & 15];
    digits[16 + i] = hex[(id.low >> (60 - 4 * i)) & 15];
  }
  return digits;
}

/// The ID that the text spells: exactly 32 hexadecimal digits of either case. Anything else gives nothing.
constexpr optional<ref_id> parse_ref_id(std::string_view text) noexcept {
  if (text.size() != 32) return {};
  std::uint64_t words[2] = {0, 0};
  for (std::size_t i = 0; i < 32; ++i) {
    const char c = text[i];
    std::uint64_t digit = 0;
    if (c >= '0' && c <= '9') digit = static_cast<std::uint64_t>(c - '0');
    else if (c >= 'a' && c <= 'f') digit = static_cast<std::uint64_t>(c - 'a') + 10;
    else if (c >= 'A' && c <= 'F') digit = static_cast<std::uint64_t>(c - 'A') + 10;
    else return {};
    words[i / 16] = words[i / 16] << 4 | digit;
  }
  return ref_id{words[0], words[1]};
}

/// What one end hands to another so that it can pull: the ID, and what to expect under it.
struct reference {
  /// the ID under which the owner published
  ref_id id{};
  std::uint64_t version = 0;      ///< 0: whatever is published now
  std::uint64_t fingerprint = 0;  ///< 0: not stated

  friend constexpr bool operator==(const reference&, const reference&) noexcept = default;
};

/// Tells recipients apart. Chosen by the recipient, or by the program that knows them all. It does not authenticate:
/// any program with a reference may claim any ID. If that matters, give each recipient a reference of its own.
struct recipient_id {
  /// 0: none
  std::uint64_t value = 0;

  friend constexpr bool operator==(const recipient_id&, const recipient_id&) noexcept = default;
  constexpr explicit operator bool() const noexcept { return value != 0; }
};

/// The ID for a name such as "site-1": XXH3-64 of its bytes, so both sides get the same ID from the same name. Never 0.
constexpr recipient_id recipient_named(std::string_view name) noexcept {
  xxh3_64 h;
  h.update(name);
  const std::uint64_t v = h.digest();
  return {v != 0 ? v : 1};
}

}  // namespace tensorpull
