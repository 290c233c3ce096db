// Which link a tool uses, as its command line says, and which links it was built with.
#pragma once

#include "command_line.hpp"
#include "text.hpp"

#include <tensorpull/system/link_url.hpp>
#include <tensorpull/transports/tls_options.hpp>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace tools {

using tensorpull::link_scheme;

/// Names of files in PEM, and what else TLS needs.
struct tls_choice {
  std::string authorities, certificate, key, revocations, name;
  bool clients = false;  ///< whether a client has to show a certificate

  /// Borrows the names.
  tensorpull::tls_options options() const {
    tensorpull::tls_options o;
    const auto given = [](const std::string& file) {
      return file.empty() ? std::string_view{} : std::string_view(file);
    };
    o.authorities.file = given(authorities);
    o.certificate.file = given(certificate);
    o.key.file = given(key);
    o.revocations.file = given(revocations);
    o.clients_have_certificates = clients;
    return o;
  }
};

/// A port that answers HTTP beside the link.
struct http_door_choice {
  std::string address{};  ///< none: there is no such port
  bool metrics = false;  ///< whether it says what it counts
  std::string origin{};  ///< of web pages that may read it; none: of no other
};
/// What a pull over HTTP needs. A URL is no link: the server there need not know tensorpull.
struct http_choice {
  bool used = false;  ///< the address is a URL
  bool secure = false;  ///< https
  std::string digest{}, bearer{}, recipient{};
};
/// A URL without its query, which may be a signature or have a key.
inline std::string without_query(std::string_view url) {
  return std::string(url.substr(0, url.find('?'))) + (url.find('?') == url.npos ? "" : "?...");
}

/// A link, an address on it, and what some links need besides.
struct link_choice {
  std::string text = "127.0.0.1:0";  ///< as it was written, without passwords: it is printed
  link_scheme scheme = link_scheme::tcp_url;
  std::string address = "127.0.0.1:0";  ///< as the transport takes it
  tls_choice tls{};
  http_door_choice door{};  ///< of send
  std::string proxy{}, proxy_user{}, proxy_password{};  ///< of TCP, TLS and URLs
  http_choice http{};
  /// Of recv: other senders of the same, over the same kind of link, as they were written and as the transport takes
  /// them.
  std::vector<std::string> also_text{}, also{};
  std::uint32_t connections = 0;  ///< of recv, at a time; 0: one to each sender
  std::string coordinator{};  ///< of a replica: the address of the owner that coordinates

  bool has_port() const { return tensorpull::link_url{scheme, {}}.has_port(); }
  bool is_stream() const {
    return scheme != link_scheme::udp_url && scheme != link_scheme::serial_url && scheme != link_scheme::nats_url;
  }
  /// Whether a pull may have several connections at a time.
  bool is_parallel() const {
    return scheme == link_scheme::tcp_url || scheme == link_scheme::tls_url || scheme == link_scheme::unix_url;
  }
  bool is_path() const {
    return (scheme == link_scheme::unix_url || scheme == link_scheme::shm_url) && address.front() != '@';
  }
  /// The same link with another address. TCP is written without its name.
  std::string with(std::string_view other) const {
    return (scheme == link_scheme::tcp_url ? "" : std::string(to_string(scheme)) + (has_port() ? "://" : ":")) +
           std::string(other);
  }
};

/// Whether this program has the link; some need a library that may not have been there when it was built.
constexpr bool built_with(link_scheme s) {
  return (s != link_scheme::tls_url || TENSORPULL_TOOLS_TLS) && (s != link_scheme::nats_url || TENSORPULL_TOOLS_NATS);
}

/// Reads an address. `wants`: what is wanted, for one that is none.
inline void parse_link(std::string_view text, const std::string& wants, link_choice& to) {
  const auto url = tensorpull::parse_link_url(text);
  if (!url) throw option_error("'" + printable(text) + "' is no address: " + wants);
  if (!built_with(url->scheme))
    throw option_error("this program was built without " +
                       std::string(url->scheme == link_scheme::tls_url ? "OpenSSL" : "libnats") + ", which '" +
                       printable(text) + "' needs");
  to.text.clear();
  if (url->scheme == link_scheme::nats_url)  // users and passwords are not shown
    tensorpull::detail::each_shown_piece(text, [&](std::string_view piece) { to.text.append(piece); });
  else to.text = text;
  to.scheme = url->scheme, to.address = url->address;
}

/// The options of both tools for their links.
inline constexpr option_form link_forms[]{{"tls-ca", true}, {"tls-cert", true}, {"tls-key", true}, {"tls-crl", true}};
/// Takes one of them. False: it is another.
inline bool set_link_option(std::string_view name, std::string_view value, link_choice& to) {
  std::string* file = nullptr;
  if (name == "tls-ca") file = &to.tls.authorities;
  if (name == "tls-cert") file = &to.tls.certificate;
  if (name == "tls-key") file = &to.tls.key;
  if (name == "tls-crl") file = &to.tls.revocations;
  if (file == nullptr) return false;
  *file = parse_path("--" + std::string(name), value);
  return true;
}
/// The same options as they are written, to be put behind another command. A proxy's password is left out.
inline std::string link_options(const link_choice& link) {
  std::string out;
  const auto add = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) out += " --" + std::string(name) + " " + shell_word(value);
  };
  add("tls-ca", link.tls.authorities), add("tls-cert", link.tls.certificate), add("tls-key", link.tls.key),
      add("tls-crl", link.tls.revocations);
  add("tls-name", link.tls.name), add("proxy", link.proxy);
  return out + (link.tls.clients ? " --tls-clients" : "");
}
/// Refuses options of a link that is not used, which might be taken for a protection that is not there.
inline void check_link_options(const link_choice& link) {
  const tls_choice& t = link.tls;
  const bool given = !t.authorities.empty() || !t.certificate.empty() || !t.key.empty() || !t.revocations.empty() ||
                     !t.name.empty() || t.clients;
  if (given && link.scheme != link_scheme::tls_url && !link.http.used)
    throw option_error("the options --tls-... are for tls://HOST:PORT, and '" + printable(link.text) +
                       "' is not encrypted");
  if (!t.name.empty() && link.http.used)
    throw option_error("--tls-name is for tls://HOST:PORT: over https the certificate has to have the host of the URL");
  if (!link.proxy.empty() && link.scheme != link_scheme::tcp_url && link.scheme != link_scheme::tls_url)
    throw option_error("--proxy is for TCP, tls://HOST:PORT and URLs");
}

}  // namespace tools
