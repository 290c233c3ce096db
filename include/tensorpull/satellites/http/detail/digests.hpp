// Digests of files as HTTP's fields (RFC 9530) and callers write them.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/core/sha256.hpp>
#include <tensorpull/satellites/http/detail/base64.hpp>
#include <tensorpull/satellites/http/detail/characters.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tensorpull::detail {

/// 64 hexadecimal digits.
constexpr optional<sha256_value> parse_sha256(std::string_view text) noexcept {
  sha256_value out{};
  if (text.size() != 64) return {};
  for (std::size_t i = 0; i < 32; ++i) {
    const auto value = hex_number(text.substr(2 * i, 2));
    if (!value) return {};
    out[i] = static_cast<std::byte>(*value);
  }
  return out;
}

/// The bytes of a member `name=:BASE64:`. `value` is what follows the sign of equality, perhaps with parameters. False:
/// it is none.
constexpr bool digest_bytes(std::string_view value, std::span<std::byte> out) noexcept {
  value = value.substr(0, value.find(';'));
  return value.size() >= 2 && value.front() == ':' && value.back() == ':' &&
         from_base64(value.substr(1, value.size() - 2), out);
}
/// The eight bytes of an XXH3-64, the highest first, of such a member.
constexpr optional<std::uint64_t> parse_xxh3(std::string_view value) noexcept {
  std::array<std::byte, 8> eight{};
  if (!digest_bytes(value, eight)) return {};
  std::uint64_t n = 0;
  for (const std::byte b : eight) n = n << 8 | std::to_integer<std::uint64_t>(b);
  return n;
}

/// The digests of all fields with the name Repr-Digest together.
struct repr_digest {
  sha256_value sha256{};
  std::uint64_t xxh3 = 0;  ///< XXH3-64, which owners of this library state
  bool known = false;  ///< there was a sha-256 that could be read
  bool ours = false;  ///< there was an xxh3 that could be read
  bool doubtful = false;  ///< one could not be read, or two differed

  /// Adds one field. Other algorithms are passed over. RFC 8941 takes the last of two equal keys; here two that differ
  /// are doubtful, since one of them is a lie.
  constexpr void add(std::string_view field) noexcept {
    for_each_element(field, [this](std::string_view member) {
      if (member.starts_with("xxh3=")) add_xxh3(member.substr(5));
      if (member.starts_with("sha-256=")) add_sha256(member.substr(8));
    });
  }

 private:
  constexpr void add_xxh3(std::string_view value) noexcept {
    const auto read = parse_xxh3(value);
    doubtful = doubtful || !read || (ours && xxh3 != *read);
    if (!read) return;
    xxh3 = *read;
    ours = true;
  }
  constexpr void add_sha256(std::string_view value) noexcept {
    sha256_value read{};
    const bool reads = digest_bytes(value, read);
    doubtful = doubtful || !reads || (known && sha256 != read);
    if (!reads) return;
    sha256 = read;
    known = true;
  }
};

/// The digest that the file has to have, as a caller states it.
struct stated_digest {
  optional<sha256_value> sha256{};
  std::uint64_t xxh3 = 0;  ///< 0: none

  bool any() const noexcept { return sha256 || xxh3 != 0; }
};
/// Reads "sha256:" and 64, or "xxh3:" and 16 hexadecimal digits; empty: none is stated. Error: invalid_argument.
inline result<stated_digest> parse_stated_digest(std::string_view text) noexcept {
  stated_digest out;
  if (text.empty()) return out;
  if (text.starts_with("sha256:")) out.sha256 = parse_sha256(text.substr(7));
  if (text.starts_with("xxh3:") && text.size() == 21)
    if (const auto n = hex_number(text.substr(5))) out.xxh3 = *n != 0 ? *n : 1;
  if (!out.any()) return failure(errc::invalid_argument, 0, std::string_view("digest"));
  return out;
}

}  // namespace tensorpull::detail
