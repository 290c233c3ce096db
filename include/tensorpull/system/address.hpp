// "host:port" as users write it.
#pragma once

#include <tensorpull/core/digits.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/system/without_secrets.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tensorpull {

/// Host and port, zero-terminated for the system's resolver. An empty host means every local address (to listen on).
struct host_port {
  /// a name or a number, without the brackets of version 6
  std::array<char, 256> host{};
  /// as decimal text
  std::array<char, 8> port{};
  /// the same port as a number
  std::uint16_t number = 0;
};

namespace detail {
/// Whether some resolver may know it: labels between points, the last of which is no number, of letters, digits,
/// hyphens, underscores and what is not ASCII.
constexpr bool may_be_a_name(std::string_view host) noexcept {
  if (host.ends_with('.')) host.remove_suffix(1);
  bool number = false;
  for (std::size_t at = 0, end = 0; at <= host.size(); at = end + 1) {
    end = std::min(host.find('.', at), host.size());
    if (end == at || end - at > 63) return false;
    number = true;
    for (const char c : host.substr(at, end - at)) {
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || (c & 0x80) != 0;
      if (!letter && (c < '0' || c > '9')) return false;
      number = number && !letter;
    }
  }
  return !number;
}
}  // namespace detail

/// Accepts `host:port`, `[v6 address]:port`, `:port`; a port from 0 to 65535. bad_address names the text
/// without_secrets().
inline result<host_port> parse_address(std::string_view text) noexcept {
  const auto refuse = [&] { return failure(errc::bad_address, 0, without_secrets(text)); };
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return refuse();
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string_view::npos) return refuse();  // a v6 address wants brackets
  host_port out;
  if (host.size() >= out.host.size() || host.find('\0') != std::string_view::npos) return refuse();
  const auto number = detail::decimal_number(port);
  if (!number || *number > 65'535 || port.size() > 5) return refuse();
  out.number = static_cast<std::uint16_t>(*number);
  if (!host.empty()) std::memcpy(out.host.data(), host.data(), host.size());
  std::memcpy(out.port.data(), port.data(), port.size());
  return out;
}

}  // namespace tensorpull
