// "host:port" as users write it.
#pragma once

#include <tensorpull/core/digits.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/system/without_secrets.hpp>

#include <array>
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
