// The lines of a head, of a request or of an answer: here alone it is decided where a line ends and what a field is.
// Whatever two readers might understand differently is refused. No heap.
#pragma once

#include <tensorpull/satellites/http/detail/characters.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tensorpull::detail {

/// A line in front of bytes that have come.
struct cut_line {
  /// Whether there is one.
  enum class kind : std::uint8_t {
    none,   ///< its end has not come
    whole,  ///< it is there
    wrong,  ///< it ends without CR: one reader would end a line here, and another would not
  };
  kind is = kind::none;
  std::string_view text{};  ///< without its end
  std::size_t bytes = 0;    ///< with it
};
constexpr cut_line first_line(std::string_view there) noexcept {
  const std::size_t newline = there.find('\n');
  if (newline == there.npos) return {};
  if (newline == 0 || there[newline - 1] != '\r') return {cut_line::kind::wrong};
  return {cut_line::kind::whole, there.substr(0, newline - 1), newline + 1};
}

/// A field of a head.
struct http_field {
  std::string_view name{};
  std::string_view value{};  ///< without blanks around it

  /// Field names have no case. `lower` is in lower case.
  constexpr bool is(std::string_view lower) const noexcept { return same_but_for_case(name, lower); }
};
/// Reads the line of a field. Nothing: a line that goes on with the one before it (folded), one without a colon, a name
/// that is none, also because of a blank before the colon. Whether the line is text (is_line_text) is looked at before.
constexpr optional<http_field> parse_field(std::string_view line) noexcept {
  const std::size_t colon = line.find(':');
  if (colon == line.npos || colon == 0) return {};
  const std::string_view name = line.substr(0, colon);
  for (const char c : name)
    if (!is_http_token(c)) return {};
  return http_field{name, trimmed(line.substr(colon + 1))};
}

/// 10 for "HTTP/1.0", 11 for "HTTP/1.1", and so on; nothing: this is no version of HTTP.
constexpr optional<unsigned> parse_http_version(std::string_view text) noexcept {
  if (text.size() != 8 || !text.starts_with("HTTP/") || !is_digit(text[5]) || text[6] != '.' || !is_digit(text[7]))
    return {};
  return static_cast<unsigned>((text[5] - '0') * 10 + (text[7] - '0'));
}
/// What a Connection field says.
struct connection_wish {
  bool close = false, keep = false;
  constexpr void add(std::string_view value) noexcept {
    for_each_element(value, [&](std::string_view one) {
      close = close || same_but_for_case(one, "close");
      keep = keep || same_but_for_case(one, "keep-alive");
    });
  }
  /// Whether the connection goes on behind this message; version 1.0 ends it unless it says otherwise.
  constexpr bool persists(bool old) const noexcept { return !close && (!old || keep); }
};

}  // namespace tensorpull::detail
