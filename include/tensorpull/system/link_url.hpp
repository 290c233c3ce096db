// Where the other end is, over whatever link: "tcp://host:8002", "unix:/run/model", or "host:8002". For programs that
// choose the transport when they run.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/system/address.hpp>
#include <tensorpull/system/without_secrets.hpp>

#include <array>
#include <cstdint>
#include <string_view>

namespace tensorpull {

/// The links that have addresses.
enum class link_scheme : std::uint8_t {
  tcp_url,  // not `tcp`: g++'s -Wshadow would complain about a transport of that name
  tls_url,
  unix_url,
  udp_url,
  serial_url,
  nats_url,
  shm_url,
  pipe_url,
};

/// As it is written before the colon.
constexpr std::string_view to_string(link_scheme s) noexcept {
  constexpr std::array<std::string_view, 8> names{"tcp", "tls", "unix", "udp", "serial", "nats", "shm", "pipe"};
  return names[static_cast<std::size_t>(s)];
}

/// A link and an address on it.
struct link_url {
  link_scheme scheme = link_scheme::tcp_url;  ///< which link
  std::string_view address{};  ///< as its transport takes it; a view into the text

  /// Whether its address is host:port, which it then is.
  constexpr bool has_port() const noexcept {
    return scheme == link_scheme::tcp_url || scheme == link_scheme::tls_url || scheme == link_scheme::udp_url;
  }
};

/// Reads an address with or without the name of a link: one of
///  - host:port, tcp://host:port, tls://host:port, udp://host:port: as parse_address reads it;
///  - nats://...: the whole text, which NATS's own library reads;
///  - unix:PATH, unix:\@name, shm:PATH, serial:DEVICE, pipe:COMMAND, pipe:-: the rest of the text is taken as it is. It
///    may contain anything but a zero byte. `//` before an absolute path is left out (unix:///run/model).
///
/// Names of links are in lower case, and nothing is written with percent signs. A host that has the name of a link
/// needs `tcp://` before it. bad_address names the text without_secrets().
inline result<link_url> parse_link_url(std::string_view text) noexcept {
  const auto refuse = [&] { return failure(errc::bad_address, 0, without_secrets(text)); };
  if (text.find('\0') != std::string_view::npos) return refuse();
  const std::string_view name = text.substr(0, text.find(':'));
  link_url out{link_scheme::tcp_url, text};
  for (int i = 0; i < 8; ++i) {
    const auto scheme = static_cast<link_scheme>(i);
    if (name != to_string(scheme) || name.size() == text.size()) continue;
    const std::string_view rest = text.substr(name.size() + 1);
    const bool slashes = rest.starts_with("//");
    out.scheme = scheme;
    if (scheme == link_scheme::nats_url) {
      if (!slashes || rest.size() == 2) return refuse();
    } else if (out.has_port()) {
      if (!slashes) return refuse();
      out.address = rest.substr(2);
    } else {
      if (rest.empty() || (slashes && !rest.starts_with("///"))) return refuse();
      out.address = slashes ? rest.substr(2) : rest;
    }
  }
  if (out.has_port() && !parse_address(out.address)) return refuse();
  return out;
}

}  // namespace tensorpull
