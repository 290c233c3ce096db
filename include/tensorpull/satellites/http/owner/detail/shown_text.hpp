// Text of others in a page: whatever its bytes are, it is text there, in one line, that moves nothing around it.
#pragma once

#include <tensorpull/image/utf8.hpp>
#include <tensorpull/satellites/http/owner/detail/text_writer.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tensorpull::detail {

/// What a text is written into.
enum class shown_in : std::uint8_t {
  html,  ///< text of an element, or an attribute between double quotes
  json,  ///< a string between double quotes, which may stand in HTML
};

/// Whether a character changes how others are shown: controls, line ends, directions of writing, marks that have no
/// width.
constexpr bool is_unshown(std::uint32_t c) noexcept {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x61c || (c >= 0x200b && c <= 0x200f) ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffb) ||
         (c >= 0xe0000 && c <= 0xe0fff);
}

/// The UTF-8 character at the front of a text that is not empty; 0: there is none.
constexpr std::size_t front_character(std::string_view text, std::uint32_t& c) noexcept {
  const auto octet = [text](std::size_t i) { return std::uint32_t{static_cast<unsigned char>(text[i])}; };
  const std::uint32_t lead = octet(0);
  const std::size_t n = 1u + (lead >= 0x80) + (lead >= 0xe0) + (lead >= 0xf0);
  if (n > text.size() || !is_utf8(text.substr(0, n))) return 0;
  c = n == 1 ? lead : lead & (0x7fu >> n);
  for (std::size_t i = 1; i < n; ++i) c = c << 6 | (octet(i) & 0x3f);
  return n;
}

/// Writes a text of others. Bytes that are no UTF-8, and characters that would not be shown, are U+FFFD. At most six
/// bytes for each of its own.
inline void put_shown(text_writer& to, std::string_view text, shown_in where) noexcept {
  const bool html = where == shown_in::html;
  while (!text.empty()) {
    std::uint32_t c = 0;
    const std::size_t n = front_character(text, c);
    if (n == 0 || is_unshown(c)) to << "\xef\xbf\xbd";
    else if (c == '<') to << (html ? "&lt;" : "\\u003c");
    else if (c == '>') to << (html ? "&gt;" : "\\u003e");
    else if (c == '&') to << (html ? "&amp;" : "\\u0026");
    else if (c == '"') to << (html ? "&quot;" : "\\\"");
    else if (c == '\'') to << (html ? "&#39;" : "'");
    else if (c == '\\') to << (html ? "\\" : "\\\\");
    else to << text.substr(0, n);
    text.remove_prefix(n == 0 ? 1 : n);
  }
}

}  // namespace tensorpull::detail
