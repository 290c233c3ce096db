// Pulls a safetensors file from any server of HTTP, with TLS or without: the policy `https`. It needs OpenSSL.
#pragma once

#include <tensorpull/satellites/http/recipient/http_pull.hpp>
#include <tensorpull/transports/over/tls/tls.hpp>

#include <optional>
#include <string>
#include <utility>

namespace tensorpull {

/// An address for pulls of `https`, whose URL may begin with http://, too.
struct https_address {
  http_address to{};       ///< what is pulled, and how
  tls_context context{};   ///< for https; none: the system's authorities and no certificate
};

namespace detail {

/// A connection that has TLS, or has not.
class http_stream {
 public:
  explicit http_stream(posix_stream plain) noexcept : plain_(std::move(plain)) {}
  explicit http_stream(tls_connection secure) noexcept : secure_(std::move(secure)) {}

  io_result read_some(scatter_list s) noexcept { return secure_ ? secure_->read_some(s) : plain_.read_some(s); }
  io_result write_some(gather_list s) noexcept { return secure_ ? secure_->write_some(s) : plain_.write_some(s); }
  io_ready wait(bool read, bool write, std::chrono::milliseconds t) noexcept {
    return secure_ ? secure_->wait(read, write, t) : plain_.wait(read, write, t);
  }
  void expect_bytes(bool on) noexcept {
    if (secure_) secure_->expect_bytes(on);
    else plain_.expect_bytes(on);
  }
  int native_handle() const noexcept { return secure_ ? secure_->native_handle() : plain_.native_handle(); }
  establishment establish() noexcept { return secure_ ? secure_->establish() : plain_.establish(); }
  io_ready interest(io_ready wanted) const noexcept { return secure_ ? secure_->interest(wanted) : wanted; }

 private:
  posix_stream plain_{};
  std::optional<tls_connection> secure_{};
};
static_assert(pollable_stream<http_stream>);

/// Makes connections for either scheme.
struct https_dial {
  using stream = http_stream;
  tls_context context{};

  /// With the system's authorities, if the context is none: they are read once, and not for each connection. Errors: as
  /// tls_context::make.
  static result<https_dial> of(const tls_context& context) {
    if (context) return https_dial{context};
    auto system = tls_context::make({});
    if (!system) return failure(system.error());
    return https_dial{std::move(*system)};
  }

  result<stream> connect(const http_url& url, const http_proxy& proxy, std::chrono::milliseconds timeout,
                         const stop_token& stop) const {
    if (!url.secure) {
      auto plain = http_dial{}.connect(url, proxy, timeout, stop);
      if (!plain) return failure(plain.error());
      return stream(std::move(*plain));
    }
    const std::string address = url.address();
    auto secure = tls_address{address, context, {}, proxy}.connect(timeout, stop);
    if (!secure) return failure(secure.error());
    return stream(std::move(*secure));
  }
  /// As http_dial::start. Errors besides: as tls_address::connect before the first byte.
  result<stream> start(const http_url& url, const http_proxy& proxy, const reached_place& place) const {
    auto socket = place.start_connect();
    if (!socket) return failure(socket.error());
    if (!url.secure) return stream(std::move(*socket));
    proxied_stream next(std::move(*socket));
    if (!proxy.address.empty()) {
      const auto request = proxy_request::to(url.address(), proxy);
      if (!request) return failure(request.error());
      auto through = proxied_stream::through(std::move(next).socket(), *request);
      if (!through) return failure(through.error());
      next = std::move(*through);
    }
    auto secure = tls_connection::client(std::move(next), context, url.host);
    if (!secure) return failure(secure.error());
    return stream(std::move(*secure));
  }
};

}  // namespace detail

/// Policy for the transport slot: as `http`, with https:// besides. The server's certificate is checked for the URL's
/// host, also behind a redirect. More errors: those of tls_address::connect.
struct https : detail::http_policy<https, detail::http_stream, tls::connection_bytes> {
  /// As the policy says.
  template <class Parts, consumer Consumer>
  static result<receipt> pull(const https_address& to, const reference& ref, Consumer& consumer,
                              const pull_options& options, typename Parts::chunking chunking) noexcept {
    const auto dial = detail::https_dial::of(to.context);
    if (!dial) return failure(dial.error());
    return detail::http_pull_with<Parts>(*dial, to.to, ref, consumer, options, chunking);
  }
  /// The same with the system's authorities.
  template <class Parts, consumer Consumer>
  static result<receipt> pull(const http_address& to, const reference& ref, Consumer& consumer,
                              const pull_options& options, typename Parts::chunking chunking) noexcept {
    return pull<Parts>(https_address{to, {}}, ref, consumer, options, chunking);
  }
  /// The same with a URL as text.
  template <class Parts, consumer Consumer>
  static result<receipt> pull(std::string_view url, const reference& ref, Consumer& consumer,
                              const pull_options& options, typename Parts::chunking chunking) noexcept {
    return pull<Parts>(http_address{.url = url}, ref, consumer, options, chunking);
  }
};
static_assert(transport<https>);

}  // namespace tensorpull
