// Whether text is UTF-8, as strictly as Rust and Python judge it: their readers refuse a header with any other name.
#pragma once

#include <cstddef>
#include <string_view>

namespace tensorpull {

/// RFC 3629: no surrogates, no overlong forms, nothing above U+10FFFF.
constexpr bool is_utf8(std::string_view text) noexcept {
  const auto octet = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  for (std::size_t i = 0; i < text.size();) {
    const unsigned lead = octet(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const std::size_t following = 1u + (lead >= 0xe0) + (lead >= 0xf0);
    if (lead < 0xc2 || lead > 0xf4 || following >= text.size() - i) return false;
    // Only the second octet's range depends on the lead.
    unsigned low = 0x80;
    unsigned high = 0xbf;
    switch (lead) {
      case 0xe0: low = 0xa0; break;
      case 0xed: high = 0x9f; break;
      case 0xf0: low = 0x90; break;
      case 0xf4: high = 0x8f; break;
      default: break;
    }
    if (octet(i + 1) < low || octet(i + 1) > high) return false;
    for (std::size_t k = 2; k <= following; ++k)
      if ((octet(i + k) & 0xc0) != 0x80) return false;
    i += following + 1;
  }
  return true;
}

static_assert(is_utf8("a\xc3\xa9") && !is_utf8("\xed\xa0\x80") && !is_utf8("\xc3"));

}  // namespace tensorpull
