// A stream of any kind, and the one transport that is made of them: what pulls, owns and holds sessions over streams is
// compiled once.
#pragma once

#include "table.hpp"

#include <tensorpull/transports/over/pipe/pipe.hpp>
#include <tensorpull/transports/over/stream_transport.hpp>
#include <tensorpull/transports/over/tcp/tcp.hpp>
#include <tensorpull/transports/over/unix_socket/unix_socket.hpp>
#if TENSORPULL_FACADE_TLS
#include "tls.hpp"
#endif

#include <variant>

namespace tensorpull::facade {

/// A pollable_stream. That of a pipe has no descriptor.
class any_stream {
 public:
  template <class Stream>
    requires(!std::same_as<Stream, any_stream>)
  explicit any_stream(Stream s) noexcept : of_(std::move(s)) {}

  io_result read_some(scatter_list in) noexcept {
    return std::visit([&](auto& s) noexcept { return s.read_some(in); }, of_);
  }
  io_result write_some(gather_list out) noexcept {
    return std::visit([&](auto& s) noexcept { return s.write_some(out); }, of_);
  }
  io_ready wait(bool read, bool write, std::chrono::milliseconds time) noexcept {
    return std::visit([&](auto& s) noexcept { return s.wait(read, write, time); }, of_);
  }
  io_result read_or_wait(scatter_list in, std::chrono::milliseconds time) noexcept {
    return std::visit(
        [&](auto& s) noexcept {
          if constexpr (requires { s.read_or_wait(in, time); }) {
            return s.read_or_wait(in, time);
          } else {
            s.wait(true, false, time);
            return s.read_some(in);
          }
        },
        of_);
  }
  io_ready interest(io_ready wanted) const noexcept {
    return ask(*this, [&](auto& s) -> decltype(s.interest(wanted)) { return s.interest(wanted); }, wanted);
  }
  establishment establish() noexcept {
    return ask(*this, [](auto& s) -> decltype(s.establish()) { return s.establish(); }, establishment{});
  }
  void expect_bytes(bool on) noexcept {
    std::visit(
        [&](auto& s) noexcept {
          if constexpr (requires { s.expect_bytes(on); }) s.expect_bytes(on);
        },
        of_);
  }
  peer_identity peer() const noexcept {
    return ask(*this, [](auto& s) -> decltype(s.peer()) { return s.peer(); }, peer_identity{});
  }
  /// -1: an event loop cannot wait for it.
  int native_handle() const noexcept {
    return ask(*this, [](auto& s) -> decltype(s.native_handle()) { return s.native_handle(); }, -1);
  }
  bool encrypted() const noexcept { return of_.index() > 3; }
#if TENSORPULL_FACADE_TLS
  /// TLS over this stream, as the end that has accepted or as the one that has connected; it is given up either way.
  result<any_stream> secured(const tls_context& with, std::string_view peer, bool accepts) noexcept {
    return std::visit(
        [&](auto& s) noexcept -> result<any_stream> {
          using stream = std::remove_cvref_t<decltype(s)>;
          if constexpr (std::same_as<stream, posix_stream> || std::same_as<stream, tls_connection>) {
            using over = tls_stream<stream>;
            auto made = accepts ? over::server(std::move(s), with) : over::client(std::move(s), with, peer);
            if (!made) return failure(made.error());
            return any_stream(std::move(*made));
          } else return failure(errc::unsupported_request);
        },
        of_);
  }
#endif
  /// Whether it is TCP, with or without TLS.
  bool is_tcp() const noexcept {
#if TENSORPULL_FACADE_TLS
    if (std::holds_alternative<tls_connection>(of_)) return true;
#endif
    return std::holds_alternative<posix_stream>(of_);
  }
  /// To be called once, when it is established after a connect that did not wait.
  void connected() noexcept {
    if (auto* const s = std::get_if<posix_stream>(&of_)) tcp::connected(*s);
  }

 private:
#if TENSORPULL_FACADE_TLS
  using kinds = std::variant<posix_stream, unix_stream, child_stream, pipe_stream, tls_connection,
                             tls_stream<tls_connection>>;  // the last: through a tunnel
#else
  using kinds = std::variant<posix_stream, unix_stream, child_stream, pipe_stream>;
#endif
  /// A call that some of them have; `otherwise` stands for that of the others.
  template <class Self, class F, class T>
  static T ask(Self& self, F f, T otherwise) noexcept {
    return std::visit(
        [&](auto& s) noexcept -> T {
          if constexpr (requires { f(s); }) return f(s);
          else return otherwise;
        },
        self.of_);
  }
  kinds of_;
};
template <class Stream>
result<any_stream> as_stream(result<Stream> s) noexcept {
  if (!s) return failure(s.error());
  return any_stream(std::move(*s));
}

/// Where the other end may be (listening_transport, 4).
struct any_way {
  std::function<bool()> more;
  std::function<result<any_stream>()> start_connect;
};
/// A stream_listener.
class any_acceptor {
 public:
  template <class Listener>
  explicit any_acceptor(const std::shared_ptr<Listener>& l)
      : fd_(l->native_handle()), now_([l] { return as_stream(l->accept()); }),
        within_(
            [l](std::chrono::milliseconds time, const stop_token& stop) { return as_stream(l->accept(time, stop)); }) {
    if constexpr (requires { l->port(); }) port_ = l->port();
  }
  result<any_stream> accept() noexcept { return now_(); }
  result<any_stream> accept(std::chrono::milliseconds time, const stop_token& stop) noexcept {
    return within_(time, stop);
  }
  int native_handle() const noexcept { return fd_; }
  std::uint16_t port() const noexcept { return port_; }

 private:
  int fd_;
  std::uint16_t port_ = 0;
  std::function<result<any_stream>()> now_;
  std::function<result<any_stream>(std::chrono::milliseconds, const stop_token&)> within_;
};
/// An address of the transport below. Borrows the place.
struct stream_place {
  const place* to;
  stop_token lives{};  ///< of a pull: its own, which also ends a command that does not end by itself
  std::chrono::milliseconds each{};  ///< for what resolve() has to wait for

  result<any_stream> connect(std::chrono::milliseconds timeout, const stop_token& stop) const noexcept;
  result<any_way> resolve() const noexcept;
  result<any_acceptor> listen() const noexcept;
};
/// Policy for the transport slot: streams of any kind.
struct any_streams : stream_transport<any_streams, any_stream, true> {
  using listener = any_acceptor;
  static void connected(any_stream& s) noexcept { s.connected(); }
};
static_assert(pollable_stream<any_stream> && stream_listener<any_acceptor, any_stream>);

/// A stream over a copy of the descriptor; null: there is no memory.
std::unique_ptr<any_stream> lend_descriptor(int fd) noexcept;

/// An address that connects as it is told.
struct dial {
  std::function<result<any_stream>(std::chrono::milliseconds, const stop_token&)> how;
  result<any_stream> connect(std::chrono::milliseconds timeout, const stop_token& stop) const noexcept {
    return how(timeout, stop);
  }
};
result<receipt> pull_by(const dial& where, const any_pull& how, const reference& ref, any_consumer& to,
                        const pull_options& options);
result<std::unique_ptr<any_owner>> own_streams(const place& at, const host_options& options);

}  // namespace tensorpull::facade
