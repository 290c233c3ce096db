// Which transport an address names, and how TLS is configured. "host:port" is TCP; otherwise it is a URL
// (tensorpull/system/link_url.hpp).
#pragma once

#include "errors.hpp"
#include "interpreter.hpp"

#include <tensorpull/system/link_url.hpp>
#include <tensorpull/transports/over/tcp/tcp.hpp>
#include <tensorpull/transports/over/unix_socket/unix_socket.hpp>
#include <tensorpull/transports/session/stream_session.hpp>
#if TENSORPULL_PYTHON_TLS
#include <tensorpull/satellites/http/proxy/proxied_address.hpp>
#include <tensorpull/transports/over/tls/tls.hpp>
#endif

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tensorpull::python {

#if TENSORPULL_PYTHON_TLS
/// The arguments of tensorpull.TLS; Python sets the attributes. Texts are empty if they were not given.
struct tls_arguments {
  std::string ca_file, ca_text, cert_file, cert_text, key_file, key_text, key_password, crl_file, check_hostname, proxy,
      proxy_user, proxy_password;
  bool require_client_certificates = false, only_tls_1_3 = false, session_tickets = false;

  tls_options options() const noexcept {
    tls_options o;
    const auto given = [](const std::string& text) noexcept {
      return text.empty() ? std::string_view{} : std::string_view(text);
    };
    o.authorities = {given(ca_text), given(ca_file)};
    o.certificate = {given(cert_text), given(cert_file)};
    o.key = {given(key_text), given(key_file)};
    o.key_password = key_password;
    o.revocations = {{}, given(crl_file)};
    o.clients_have_certificates = require_client_certificates;
    o.minimum = only_tls_1_3 ? tls_version::v1_3 : tls_version::v1_2;
    o.session_tickets = session_tickets;
    return o;
  }
};
/// A configuration of TLS. Connections and owners share it; reload() is for those that come later. Files are read
/// without the interpreter's lock: one may be a pipe that another thread writes.
class tls_settings {
 public:
  explicit tls_settings(const tls_arguments& a)
      : given_(a), context_(value_or_raise(without_lock([this] { return tls_context::make(given_.options()); }))) {}
  tls_settings(const tls_settings&) = delete;
  /// Reads the files again.
  void reload() {
    value_or_raise(without_lock([this] { return context_.reload(given_.options()); }));
  }
  tls_address at(std::string_view address) const noexcept {
    return {address, context_, given_.check_hostname, given_.proxy.empty() ? nullptr : &through_};
  }
  const tls_arguments& given() const noexcept { return given_; }

 private:
  tls_arguments given_;
  tls_context context_;
  proxy_dialer through_{{given_.proxy, given_.proxy_user, given_.proxy_password}};
};
#else
/// There is no TLS in this build.
struct tls_settings {};
#endif

/// An address, read. Borrows its text and the settings of TLS.
struct place {
  link_url url;
  const tls_settings* tls = nullptr;
};

/// Which link an address names. Raises bad_address.
inline link_url link_of(std::string_view address) {
  const auto url = parse_link_url(address);
  if (!url)
    raise(url.error(), false,
          "this is no address: host:port is wanted, as in 127.0.0.1:8002, or a link such as unix:/run/model");
  return *url;
}

/// Raises bad_address, also for a link that is not among `links`, and invalid_argument for settings of TLS if there is
/// none.
inline place place_among(std::initializer_list<link_scheme> links, std::string_view address, const tls_settings* tls) {
  const link_url url = link_of(address);
  const bool secure = url.scheme == link_scheme::tls_url;
  if (url.scheme == link_scheme::nats_url && !TENSORPULL_PYTHON_NATS)
    raise(
        errc::bad_address, without_secrets(address).view(),
        "this build of tensorpull has no NATS: libnats was not there when it was built, or it was not asked for, as in wheels (TENSORPULL_PYTHON_NATS)");
  if (secure && !TENSORPULL_PYTHON_TLS)
    raise(errc::bad_address, without_secrets(address).view(),
          "this build of tensorpull has no TLS: OpenSSL was not there when it was built");
  if (std::find(links.begin(), links.end(), url.scheme) == links.end())
    raise(errc::bad_address, without_secrets(address).view(), "nobody can listen on a link of this kind");
  if (tls != nullptr && !secure)
    raise(errc::invalid_argument, without_secrets(address).view(),
          "ssl is for tls:// and https://, and this address is not encrypted");
  return {url, tls};
}
/// Of any that a download, an average or a session takes.
inline place place_of(std::string_view address, const tls_settings* settings) {
  using enum link_scheme;
  return place_among({tcp_url, tls_url, unix_url, shm_url, pipe_url, udp_url, serial_url, nats_url}, address, settings);
}
/// Of any that can be listened on.
inline place listening_place_of(std::string_view address, const tls_settings* settings) {
  using enum link_scheme;
  return place_among({tcp_url, tls_url, unix_url, shm_url, udp_url, serial_url, nats_url}, address, settings);
}

/// Of an address of TCP, TLS or a Unix socket. Calls `f(transport, where)` with the transport's policy, as a
/// std::type_identity, and what is to be given to it as the address.
template <class F>
auto over(const place& p, F f) {
#if TENSORPULL_PYTHON_TLS
  if (p.url.scheme == link_scheme::tls_url)
    return f(std::type_identity<tls_on_threads>{},
             p.tls != nullptr ? p.tls->at(p.url.address) : tls_address{p.url.address});
#endif
  return p.url.scheme == link_scheme::unix_url ? f(std::type_identity<unix_socket_on_threads>{}, p.url.address)
                                               : f(std::type_identity<tcp_on_threads>{}, p.url.address);
}

/// Places of one of these transports, as it takes addresses: as `over` gives each of them.
template <class Address>
std::vector<Address> addresses_over(std::span<const place> places) {
  std::vector<Address> all;
  for (const place& p : places)
    over(p, [&](auto, const auto& address) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(address)>, Address>) all.push_back(address);
    });
  return all;
}

}  // namespace tensorpull::python
