// Makes the connections of pulls and uploads over plain http.
#pragma once

#include <tensorpull/links/posix/establish.hpp>
#include <tensorpull/satellites/http/text/http_url.hpp>
#include <tensorpull/transports/over/proxy/proxy_request.hpp>
#include <tensorpull/transports/over/tcp/tcp_connect.hpp>

namespace tensorpull::detail {

/// Where a connection leads: further ones are made to the same place, without asking for its address and without
/// waiting.
class reached_place {
 public:
  /// Error: connection_failed: the socket has no other end.
  static result<reached_place> of(int fd) noexcept {
    reached_place p;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&p.where_), &p.size_) != 0)
      return failure(errc::connection_failed, 0, {}, errno);
    return p;
  }
  /// Begins to connect; the stream's establish() says how it ends. Error: connection_failed (with errno).
  result<posix_stream> start_connect() const noexcept {
    posix_stream s(::socket(where_.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), true);
    if (s.native_handle() < 0) return failure(errc::connection_failed, 0, {}, errno);
    if (::connect(s.native_handle(), reinterpret_cast<const sockaddr*>(&where_), size_) != 0 && errno != EINPROGRESS)
      return failure(errc::connection_failed, 0, {}, errno);
    return s;
  }

 private:
  sockaddr_storage where_{};
  socklen_t size_ = sizeof(sockaddr_storage);
};

/// Makes connections for plain http.
struct http_dial {
  using stream = posix_stream;
  static constexpr bool encrypts = false;
  /// With a proxy, to the proxy: the request names the whole URL then. Errors: as tcp_connect; unsupported_request: the
  /// URL is https.
  result<stream> connect(const http_url& url, const http_proxy& proxy, std::chrono::milliseconds timeout,
                         const stop_token& stop) const {
    if (url.secure) return failure(errc::unsupported_request, 0, std::string_view("https, without transports/https"));
    const std::string address = url.address();
    return tcp_connect(proxy.address.empty() ? std::string_view(address) : proxy.address, deadline_after(timeout),
                       stop);
  }
  /// Begins another connection to the place where one has led, and does not wait. Errors: as
  /// reached_place::start_connect.
  result<stream> start(const http_url&, const http_proxy&, const reached_place& place) const noexcept {
    return place.start_connect();
  }
};

}  // namespace tensorpull::detail
