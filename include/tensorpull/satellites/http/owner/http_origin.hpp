// Which web pages a browser lets read an owner's answers (the origin of the Fetch standard's CORS protocol).
#pragma once

#include <tensorpull/satellites/http/detail/characters.hpp>

#include <array>
#include <cstddef>
#include <string_view>

namespace tensorpull {

/// No page, the pages of one origin, or every page. A value that was read is safe to stand in a field of an answer: it
/// has no spaces and no line ends. No heap.
class http_origin {
 public:
  /// Bytes of the longest text.
  static constexpr std::size_t most_bytes = 128;

  /// No page of another origin.
  constexpr http_origin() noexcept = default;
  /// Every page, from wherever it came.
  static constexpr http_origin any() noexcept { return http_origin("*"); }
  /// "*", or SCHEME://HOST[:PORT] as a browser writes it: in lower case, without a path and without the scheme's own
  /// port (80 of http, 443 of https). Nothing for any other text: a browser would never send it, or, as `null`, any
  /// page can have it.
  static constexpr optional<http_origin> parse(std::string_view text) noexcept {
    if (text == "*") return any();
    const std::size_t colon = text.find("://");
    if (text.size() > most_bytes || colon == text.npos || colon == 0 || !detail::is_lower(text[0])) return {};
    const std::string_view scheme = text.substr(0, colon);
    for (const char c : scheme)
      if (!detail::is_lower(c) && !detail::is_digit(c) && c != '+' && c != '-' && c != '.') return {};
    std::string_view host = text.substr(colon + 3), port;
    const bool bracketed = !host.empty() && host.front() == '[';
    const std::size_t closed = bracketed ? host.find(']') : 0, ends = host.find(':', closed);
    if (closed == host.npos) return {};
    if (ends != host.npos) {
      port = host.substr(ends + 1);
      if (!is_port(port) || (scheme == "http" && port == "80") || (scheme == "https" && port == "443")) return {};
      host = host.substr(0, ends);
    }
    if (bracketed && closed + 1 != host.size()) return {};
    const std::string_view name = bracketed ? host.substr(1, closed - 1) : host;
    if (name.empty()) return {};
    for (const char c : name)
      if (!(bracketed ? in_v6_host(c) : in_host(c))) return {};
    return http_origin(text);
  }

  /// As it stands in Access-Control-Allow-Origin; empty: no page.
  constexpr std::string_view text() const noexcept { return {text_.data(), size_}; }
  /// Whether some page may.
  constexpr explicit operator bool() const noexcept { return size_ != 0; }

 private:
  constexpr explicit http_origin(std::string_view text) noexcept : size_(text.size()) {
    for (std::size_t i = 0; i < size_; ++i) text_[i] = text[i];
  }
  static constexpr bool in_v6_host(char c) noexcept {
    return (detail::is_hexadecimal(c) && detail::in_lower_case(c) == c) || c == ':';
  }
  static constexpr bool in_host(char c) noexcept {
    return detail::is_lower(c) || detail::is_digit(c) || c == '-' || c == '.' || c == '_';
  }
  static constexpr bool is_port(std::string_view digits) noexcept {
    const auto n = detail::decimal_number(digits);
    return n && digits.front() != '0' && *n <= 65535;
  }
  std::array<char, most_bytes> text_{};
  std::size_t size_ = 0;
};

}  // namespace tensorpull
