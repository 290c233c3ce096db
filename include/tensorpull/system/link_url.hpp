// Where the other end is, over whatever link: "tcp://host:8002", "unix:/run/model", or "host:8002". For programs that
// choose the transport when they run.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/system/address.hpp>
#include <tensorpull/system/without_secrets.hpp>

#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace tensorpull {

/// How an address is written.
enum class link_form : std::uint8_t {
  port,  ///< host:port
  text,  ///< anything, such as a path
  url,   ///< with the name of its link, since the link's own library reads it
};

/// A link and an address on it.
struct link_url {
  std::string_view scheme = "tcp";  ///< which link, as it is written before the colon
  std::string_view address{};  ///< as its transport takes it; a view into the text
  link_form form = link_form::port;  ///< what kind of address it is
};

/// Reads an address with or without the name of a link: one of
///  - host:port, tcp://host:port, tls://host:port, udp://host:port: as parse_address reads it;
///  - unix:PATH, unix:\@name, serial:DEVICE, pipe:COMMAND, pipe:-: the rest of the text is taken as it is. It may
///    contain anything but a zero byte. `//` before an absolute path is left out (unix:///run/model);
///  - another link's: name:/PATH, name:\@name, or name://..., a URL. `also`: a further name whose addresses are any
///  text.
///
/// Names of links are lower-case letters, and nothing is written with percent signs. A host that has the name of a link
/// needs `tcp://` before it. bad_address names the text without_secrets().
inline result<link_url> parse_link_url(std::string_view text, std::string_view also = {}) noexcept {
  const auto refuse = [&] { return failure(errc::bad_address, 0, without_secrets(text)); };
  if (text.find('\0') != std::string_view::npos) return refuse();
  const std::string_view name = text.substr(0, text.find(':')),
                         rest = text.substr(std::min(name.size() + 1, text.size()));
  const auto is_of = [&](std::initializer_list<std::string_view> names) {
    for (const std::string_view one : names)
      if (one == name) return !name.empty() && name.size() < text.size();
    return false;
  };
  const bool slashes = rest.starts_with("//"), url = slashes && !rest.starts_with("///");
  link_url out{.address = text};
  if (is_of({"tcp", "tls", "udp"})) {
    if (!slashes) return refuse();
    out = {name, rest.substr(2)};
  } else if (is_of({"unix", "serial", "pipe", also})) {
    if (rest.empty() || url) return refuse();
    out = {name, slashes ? rest.substr(2) : rest, link_form::text};
  } else if (!parse_address(text)) {
    const bool names = url ? rest.size() > 2 : rest.starts_with('/') || rest.starts_with('@');
    if (!names || name.empty() || name.find_first_not_of("abcdefghijklmnopqrstuvwxyz") != name.npos) return refuse();
    out = url ? link_url{name, text, link_form::url} : link_url{name, slashes ? rest.substr(2) : rest, link_form::text};
  }
  if (out.form == link_form::port && !parse_address(out.address)) return refuse();
  return out;
}

}  // namespace tensorpull
