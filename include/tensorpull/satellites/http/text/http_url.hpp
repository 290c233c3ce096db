// An http:// or https:// URL, read strictly: what is accepted here is sent to a server byte for byte, and has nothing
// that could end a line.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/transports/over/proxy/detail/characters.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tensorpull {

/// The parts of a URL. It owns its text: one allocation for each part that is longer than a short string.
struct http_url {
  /// Characters of the longest URL that is accepted: those that are signed for an object store have about 2,000.
  static constexpr std::size_t most_bytes = 8192;

  bool secure = false;       ///< https
  std::string host{};        ///< in lower case, without the brackets of an address of version 6
  std::uint16_t port = 0;    ///< never 0 once it was parsed
  std::string target{};      ///< path and query as they were written; "/" if there is neither

  /// "host:port", as tcp_connect takes it.
  std::string address() const {
    const bool v6 = host.find(':') != std::string::npos;
    return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
  }
  /// What the Host field says: the port only if it is not the scheme's own.
  std::string authority() const {
    if (port != (secure ? 443 : 80)) return address();
    return host.find(':') != std::string::npos ? "[" + host + "]" : host;
  }
  /// The whole, in one spelling. It has the query, which may have a signature: do not print it.
  std::string text() const { return (secure ? "https://" : "http://") + authority() + target; }
  /// Whether scheme, host and port are the same. What proves our identity is sent to one origin alone.
  bool same_origin(const http_url& other) const noexcept {
    return secure == other.secure && host == other.host && port == other.port;
  }
};

namespace detail {

/// Whether these characters may stand in a path or a query: visible ASCII without those that RFC 3986 leaves out and
/// servers disagree about, and a percent sign only before two hexadecimal digits.
constexpr bool is_target(std::string_view text) noexcept {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c <= 0x20 || c >= 0x7f || std::string_view("\"<>\\^`{|}#").find(c) != std::string_view::npos) return false;
    if (c == '%' && (i + 2 >= text.size() || !is_hexadecimal(text[i + 1]) || !is_hexadecimal(text[i + 2])))
      return false;
  }
  return true;
}
/// Whether these characters may stand in a host. Percent signs may not: servers and resolvers would disagree about the
/// host that is meant.
constexpr bool is_host(std::string_view text) noexcept {
  if (text.empty() || text.size() > 253) return false;
  for (const char c : text)
    if (!is_alphanumeric(c) && c != '.' && c != '-' && c != '_') return false;
  return text.front() != '.' && text.front() != '-';
}
constexpr bool is_v6_host(std::string_view text) noexcept {
  if (text.size() < 2 || text.size() > 45 || text.find(':') == std::string_view::npos) return false;
  for (const char c : text)
    if (!is_hexadecimal(c) && c != ':' && c != '.') return false;
  return true;
}

/// Reads "host", "host:port", "[v6]" or "[v6]:port". False: it is none of them.
inline bool read_authority(std::string_view text, http_url& out) {
  std::string_view host = text, port{};
  bool has_port = false;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == text.npos || !is_v6_host(text.substr(1, end - 1))) return false;
    host = text.substr(1, end - 1);
    const std::string_view rest = text.substr(end + 1);
    if (!rest.empty() && rest.front() != ':') return false;
    has_port = !rest.empty();
    port = rest.substr(has_port ? 1 : 0);
  } else {
    const std::size_t colon = text.find(':');
    host = text.substr(0, colon);
    if (!is_host(host)) return false;
    has_port = colon != text.npos;
    if (has_port) port = text.substr(colon + 1);
  }
  out.port = out.secure ? 443 : 80;
  if (has_port) {
    const auto n = decimal_number(port);
    if (!n || *n == 0 || *n > 65535 || port.size() > 5) return false;
    out.port = static_cast<std::uint16_t>(*n);
  }
  out.host = host;
  for (char& c : out.host) c = in_lower_case(c);
  return true;
}

/// Takes "." and ".." out of a path (RFC 3986, 5.2.4), for references that a server gives relative to what it was
/// asked.
inline std::string without_dots(std::string_view path) {
  std::string out;
  while (!path.empty()) {
    const std::size_t end = path.find('/', 1);
    const std::string_view part = path.substr(0, end);
    path = end == path.npos ? std::string_view{} : path.substr(end);
    const bool last = path.empty();
    if (part == "/.") {
      if (last) out += '/';
    } else if (part == "/..") {
      out.resize(std::string_view(out).find_last_of('/') == std::string_view::npos ? 0 : out.find_last_of('/'));
      if (last) out += '/';
    } else {
      out += part;
    }
  }
  return out.empty() ? "/" : out;
}

}  // namespace detail

/// Reads a URL as a user writes it. `bad_address`, which names no part of the text, since it may have a secret: another
/// scheme; a user or a password in front of the host; a host or a port that is none; a character that has no place in a
/// URL (spaces, controls, all that is not ASCII); a percent sign without two digits. What follows a `#` is not sent.
/// Throws std::bad_alloc.
inline result<http_url> parse_http_url(std::string_view text) {
  const auto refuse = [] { return failure(errc::bad_address, 0, std::string_view("URL")); };
  if (text.size() > http_url::most_bytes) return refuse();
  http_url out;
  const std::size_t colon = text.find("://");
  if (colon == text.npos) return refuse();
  const std::string_view scheme = text.substr(0, colon);
  if (detail::same_but_for_case(scheme, "https")) out.secure = true;
  else if (!detail::same_but_for_case(scheme, "http")) return refuse();
  text.remove_prefix(colon + 3);
  if (const std::size_t fragment = text.find('#'); fragment != text.npos) {
    if (!detail::is_target(text.substr(fragment + 1))) return refuse();
    text = text.substr(0, fragment);
  }
  const std::size_t path = std::min(text.find_first_of("/?"), text.size());
  if (!detail::read_authority(text.substr(0, path), out)) return refuse();
  const std::string_view target = text.substr(path);
  if (!detail::is_target(target)) return refuse();
  out.target = target.starts_with('/') ? std::string(target) : "/" + std::string(target);
  return out;
}

/// Where a redirect leads: `location` relative to the URL that was asked. Errors as parse_http_url; not_permitted: it
/// leads from https to http.
inline result<http_url> resolve_location(const http_url& base, std::string_view location) {
  const auto refuse = [] { return failure(errc::bad_address, 0, std::string_view("Location")); };
  if (location.empty() || location.size() > http_url::most_bytes) return refuse();
  const std::size_t colon = location.find(':');
  if (colon != location.npos && colon < location.find_first_of("/?#")) {
    auto to = parse_http_url(location);
    if (!to) return refuse();
    if (base.secure && !to->secure)
      return failure(errc::not_permitted, 0, std::string_view("a redirect from https to http"));
    return to;
  }
  if (location.starts_with("//")) {
    auto to = parse_http_url((base.secure ? "https:" : "http:") + std::string(location));
    if (!to) return refuse();
    return to;
  }
  location = location.substr(0, location.find('#'));
  if (!detail::is_target(location)) return refuse();
  http_url to = base;
  const std::string_view old_path = std::string_view(base.target).substr(0, base.target.find('?'));
  const std::size_t query = std::min(location.find('?'), location.size());
  const std::string_view path = location.substr(0, query);
  if (path.empty()) to.target = std::string(old_path);
  else if (path.starts_with('/')) to.target = detail::without_dots(path);
  else to.target = detail::without_dots(std::string(old_path.substr(0, old_path.rfind('/') + 1)) + std::string(path));
  to.target += location.substr(query);
  if (location.empty()) to.target = base.target;
  return to;
}

}  // namespace tensorpull
