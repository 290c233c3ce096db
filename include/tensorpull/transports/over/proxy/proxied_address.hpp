// Where `tcp` connects to through an HTTP proxy: `net::session::connect(proxied_address{"server:8002", {.address =
// "proxy:3128"}})`.
#pragma once

#include <tensorpull/transports/over/proxy/proxied_stream.hpp>

namespace tensorpull {

/// An address for pulls and sessions of `tcp`. The texts are borrowed. The host's name is resolved by the proxy.
struct proxied_address {
  std::string_view address;  ///< "host:port" behind the proxy
  http_proxy proxy{};        ///< the proxy; without an address: none is on the way

  /// As tcp_connect, with two more errors: invalid_argument (user or password); proxy_refused, whose `name` has the
  /// HTTP status and the proxy ("407 from proxy:3128": it wants another user or password), or the proxy alone (its
  /// answer is not HTTP). A status from 500 on is connection_failed, with the same name. Until a transfer counts there,
  /// `at` has the status, too. No error has user or password.
  result<posix_stream> connect(std::chrono::milliseconds timeout, const stop_token& stop = {}) const noexcept {
    auto s = detail::connect_through(address, proxy, detail::deadline_after(timeout), stop);
    if (!s) return failure(s.error());
    return std::move(*s).socket();
  }
};

}  // namespace tensorpull
