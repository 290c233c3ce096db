// The password that a status page asks for: kept as its digest, and compared in a time that says nothing.
#pragma once

#include <tensorpull/core/sha256.hpp>
#include <tensorpull/satellites/http/detail/base64.hpp>
#include <tensorpull/std/optional.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace tensorpull {

/// None, or one of 16 to 128 characters. It is not one of those that people choose and reuse: whoever can connect may
/// try as many as the line carries, so draw it (`openssl rand -hex 16`).
class http_password {
 public:
  static constexpr std::size_t least_bytes = 16;  ///< of a password
  static constexpr std::size_t most_bytes = 128;  ///< of a password

  /// None: nobody may look.
  constexpr http_password() noexcept = default;
  /// Nothing for a text that is shorter or longer, or has control characters, which a browser cannot send.
  static constexpr optional<http_password> parse(std::string_view text) noexcept {
    if (text.size() < least_bytes || text.size() > most_bytes) return {};
    for (const char c : text)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return {};
    http_password p;
    p.digest_ = digest_of(text);
    p.given_ = true;
    return p;
  }

  /// Whether there is one.
  constexpr explicit operator bool() const noexcept { return given_; }
  /// Whether this is it.
  constexpr bool is(std::string_view text) const noexcept {
    const sha256_value other = digest_of(text);
    std::byte differs{};
    for (std::size_t i = 0; i < other.size(); ++i) differs |= other[i] ^ digest_[i];
    return given_ && differs == std::byte{};
  }
  /// Whether credentials of the scheme Basic (RFC 7617) have it, whatever the user's name is.
  constexpr bool is_in_basic(std::string_view base64) const noexcept {
    std::array<std::byte, 2 * most_bytes> room{};
    const std::size_t padding = std::size_t{base64.ends_with('=')} + base64.ends_with("==");
    const std::size_t size = base64.size() / 4 * 3 - (base64.size() < 4 ? 0 : padding);
    if (size > room.size() || !detail::from_base64(base64, std::span(room).first(size))) return false;
    std::array<char, 2 * most_bytes> text{};
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(room[i]);
    const std::string_view both(text.data(), size);
    const std::size_t colon = both.find(':');
    return colon != both.npos && is(both.substr(colon + 1));
  }

 private:
  static constexpr sha256_value digest_of(std::string_view text) noexcept {
    sha256_hash hash;
    for (const char c : text) {
      const std::byte one{static_cast<unsigned char>(c)};
      hash.update(std::span(&one, 1));
    }
    return hash.value();
  }
  sha256_value digest_{};
  bool given_ = false;
};

}  // namespace tensorpull
