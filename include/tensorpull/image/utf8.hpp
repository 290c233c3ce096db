// Whether text is UTF-8, as strictly as Rust and Python judge it: their readers refuse a header with any other name.
#pragma once

#include <cstdint>
#include <string_view>

namespace tensorpull {

/// Text an octet at a time (RFC 3629): no surrogates, no overlong forms, nothing above U+10FFFF.
class utf8_octets {
 public:
  /// Whether this octet may follow.
  constexpr bool take(char c) noexcept {
    const auto octet = static_cast<unsigned char>(c);
    if (following_ != 0) {
      const bool fits = octet >= least_ && octet <= most_;
      --following_;
      least_ = 0x80;
      most_ = 0xbf;
      return fits;
    }
    if (octet < 0x80) return true;
    following_ = static_cast<std::uint8_t>(1 + (octet >= 0xe0) + (octet >= 0xf0));
    // only the second octet's range depends on the first
    if (octet == 0xe0) least_ = 0xa0;
    if (octet == 0xed) most_ = 0x9f;
    if (octet == 0xf0) least_ = 0x90;
    if (octet == 0xf4) most_ = 0x8f;
    return octet >= 0xc2 && octet <= 0xf4;
  }
  /// Whether the text may end here.
  constexpr bool whole() const noexcept { return following_ == 0; }

 private:
  std::uint8_t following_ = 0, least_ = 0x80, most_ = 0xbf;
};

/// Whether a text is UTF-8. Cost: a pass over it.
constexpr bool is_utf8(std::string_view text) noexcept {
  utf8_octets octets;
  for (const char c : text)
    if (!octets.take(c)) return false;
  return octets.whole();
}

static_assert(is_utf8("a\xc3\xa9") && !is_utf8("\xed\xa0\x80") && !is_utf8("\xc3"));

}  // namespace tensorpull
