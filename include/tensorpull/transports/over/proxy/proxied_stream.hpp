// A TCP connection that may lead through an HTTP proxy. Once it is established it is the socket that it has.
#pragma once

#include <tensorpull/links/posix/establish.hpp>
#include <tensorpull/links/posix/posix_stream.hpp>
#include <tensorpull/std/memory.hpp>
#include <tensorpull/transports/over/proxy/proxy_request.hpp>
#include <tensorpull/transports/over/proxy/proxy_response.hpp>
#include <tensorpull/transports/over/tcp/tcp_connect.hpp>

#include <new>

namespace tensorpull {

/// A pollable_stream over a socket. The request to the proxy is an allocation that ends when the connection is
/// established.
class proxied_stream {
 public:
  /// No proxy is on the way.
  explicit proxied_stream(posix_stream socket = {}) noexcept : socket_(std::move(socket)) {}
  /// The socket leads to a proxy, perhaps it is still connecting, and establish() asks the proxy. Error: out_of_memory.
  static result<proxied_stream> through(posix_stream socket, const proxy_request& request) noexcept {
    proxied_stream s(std::move(socket));
    s.talk_.reset(new (std::nothrow) talk{request});
    if (!s.talk_) return failure(errc::out_of_memory);
    return s;
  }

  /// The descriptor; -1: none.
  int native_handle() const noexcept { return socket_.native_handle(); }
  /// The socket, which is the caller's then.
  posix_stream socket() && noexcept { return std::move(socket_); }
  /// The status with which the proxy refused; 0: it has not.
  unsigned refusal() const noexcept { return refusal_; }

  io_result read_some(scatter_list spans) noexcept { return socket_.read_some(spans); }
  io_result write_some(gather_list spans) noexcept { return socket_.write_some(spans); }
  io_result read_or_wait(scatter_list spans, std::chrono::milliseconds timeout) noexcept {
    return socket_.read_or_wait(spans, timeout);
  }
  /// As posix_stream::expect_bytes.
  void expect_bytes(bool on) noexcept { socket_.expect_bytes(on); }
  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    return socket_.wait(read, write, timeout);
  }

  /// Continues the connect, then the conversation with the proxy. A proxy that refuses is proxy_refused, and
  /// connection_failed if it reports that it could not reach the other end (a status from 500 on), so that it is tried
  /// again.
  establishment establish() noexcept {
    if (const auto under = socket_.establish(); under.status != io_status::ok || !talk_) return under;
    const auto request = talk_->request.bytes();
    while (talk_->sent < request.size()) {
      const std::array<std::span<const std::byte>, 1> out{request.subspan(talk_->sent)};
      const io_result io = socket_.write_some(out);
      if (io.status == io_status::would_block) return {io.status, 0, {false, true}};
      if (io.status != io_status::ok) return {io.status, io.system, {}};
      talk_->sent += io.bytes;
    }
    for (;;) {
      std::byte byte{};
      const std::array<std::span<std::byte>, 1> in{std::span(&byte, 1)};
      const io_result io = socket_.read_some(in);
      if (io.status == io_status::would_block) return {io.status, 0, {true, false}};
      if (io.status != io_status::ok) return {io.status, io.system != 0 ? io.system : ECONNRESET, {}};
      const auto how = talk_->response.take(byte);
      if (how == proxy_response::progress::bad) return {io_status::failed, EPROTO, {}, errc::proxy_refused};
      if (how == proxy_response::progress::done) break;
    }
    const unsigned status = talk_->response.status();
    talk_.reset();
    if (status >= 200 && status < 300) return {};
    refusal_ = static_cast<std::uint16_t>(status);
    return {io_status::failed, 0, {}, status >= 500 ? errc::connection_failed : errc::proxy_refused};
  }

 private:
  struct talk {
    proxy_request request;
    std::size_t sent = 0;
    proxy_response response{};
  };
  posix_stream socket_;
  detail::unique_ptr<talk> talk_;  // none: no proxy, or it has consented
  std::uint16_t refusal_ = 0;
};
static_assert(pollable_stream<proxied_stream>);

namespace detail {

/// The name of an error about a proxy: its address, after the status with which it refused, if it did.
inline error_name refusal_of(unsigned status, std::string_view proxy) noexcept {
  constexpr std::string_view from = "000 from ";
  std::array<char, 64> text{};
  const auto rest = proxy.substr(0, text.size() - from.size());
  std::memcpy(text.data(), from.data(), from.size());
  for (std::size_t i = 3; i-- > 0; status /= 10) text[i] = static_cast<char>('0' + status % 10);
  std::memcpy(text.data() + from.size(), rest.data(), rest.size());
  return std::string_view(text.data(), from.size() + rest.size());
}

/// Connects to "host:port", through the proxy if it names one. Errors: as proxied_address::connect.
inline result<proxied_stream> connect_through(std::string_view address, const http_proxy& proxy,
                                              std::chrono::steady_clock::time_point deadline,
                                              const stop_token& stop) noexcept {
  if (proxy.address.empty()) {
    auto direct = tcp_connect(address, deadline, stop);
    if (!direct) return failure(direct.error());
    return proxied_stream(std::move(*direct));
  }
  const auto request = proxy_request::to(address, proxy);
  if (!request) return failure(request.error());
  auto socket = tcp_connect(proxy.address, deadline, stop);
  if (!socket) return failure(socket.error());
  auto s = proxied_stream::through(std::move(*socket), *request);
  if (!s) return s;
  if (const auto ok = establish_by(*s, deadline, stop); !ok)
    return failure(ok.error().code, s->refusal(),
                   s->refusal() != 0 ? refusal_of(s->refusal(), proxy.address) : error_name(proxy.address),
                   ok.error().system);
  return s;
}

}  // namespace detail
}  // namespace tensorpull
