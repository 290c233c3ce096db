// Which characters HTTP's text consists of, its lists, and its numbers. For both ends, and for proxies on the way.
#pragma once

#include <tensorpull/core/digits.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tensorpull::detail {

constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
constexpr bool is_lower(char c) noexcept { return c >= 'a' && c <= 'z'; }
constexpr char in_lower_case(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
constexpr bool is_alphanumeric(char c) noexcept { return is_digit(c) || is_lower(in_lower_case(c)); }
constexpr bool is_hexadecimal(char c) noexcept {
  return is_digit(c) || (in_lower_case(c) >= 'a' && in_lower_case(c) <= 'f');
}
constexpr bool is_http_token(char c) noexcept {
  return is_alphanumeric(c) || std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}
/// Whether nothing in it could end a line, or be taken for its end: no control character but the tab.
constexpr bool is_line_text(std::string_view text) noexcept {
  for (const char c : text)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f) return false;
  return true;
}
/// The same without tabs: what callers say of themselves.
constexpr bool is_printable(std::string_view text) noexcept {
  return is_line_text(text) && text.find('\t') == text.npos;
}
constexpr bool same_but_for_case(std::string_view text, std::string_view lower) noexcept {
  if (text.size() != lower.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (in_lower_case(text[i]) != lower[i]) return false;
  return true;
}
constexpr std::string_view trimmed(std::string_view text) noexcept {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}
/// Calls `each` with the elements of a list, which commas part. Entity tags may have commas between their quotes.
template <class Each>
constexpr void for_each_element(std::string_view list, Each each) noexcept {
  std::size_t begin = 0;
  bool quoted = false;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && list[i] == '"') quoted = !quoted;
    if (i < list.size() && (list[i] != ',' || quoted)) continue;
    if (const auto one = trimmed(list.substr(begin, i - begin)); !one.empty()) each(one);
    begin = i + 1;
  }
}

/// 16 hexadecimal digits of lower case: a version as our URLs and tags write it.
constexpr optional<std::uint64_t> http_version_number(std::string_view text) noexcept {
  if (text.size() != 16) return {};
  for (const char c : text)
    if (in_lower_case(c) != c) return {};
  return hex_number(text);
}

}  // namespace tensorpull::detail
