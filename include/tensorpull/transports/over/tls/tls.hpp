// TLS over TCP, with OpenSSL. For an owner, or for many connections, include transports/host/owner.hpp or host.hpp,
// too.
#pragma once

#include <tensorpull/links/posix/dialer.hpp>
#include <tensorpull/links/posix/establish.hpp>
#include <tensorpull/transports/host_budget.hpp>
#include <tensorpull/transports/over/stream_transport.hpp>
#include <tensorpull/transports/over/tcp/tcp_listener.hpp>
#include <tensorpull/transports/over/tls/tls_stream.hpp>

#include <memory>
#include <utility>

namespace tensorpull {

/// One end of a connection of `tls`.
using tls_connection = tls_stream<posix_stream>;

/// Accepts TLS connections. Movable; the destructor stops listening.
class tls_listener {
 public:
  /// Borrows nothing: the context is shared.
  tls_listener(tcp_listener listener, tls_context context) noexcept
      : listener_(std::move(listener)), context_(std::move(context)) {}

  /// The port that it listens on.
  std::uint16_t port() const noexcept { return listener_.port(); }
  /// The descriptor, which stays the listener's.
  int native_handle() const noexcept { return listener_.native_handle(); }

  /// The next connection, with the context as it is now; does not wait, and the handshake is yet to be done. Errors: as
  /// tcp_listener::accept.
  result<tls_connection> accept() noexcept { return secure(listener_.accept()); }
  /// The next connection whose handshake is done; waits for it. Several shake hands at the same time, at most
  /// `most_at_once`, and go on with the next call: a silent one keeps nobody else out. It is ended after 10 s, or after
  /// one if others wait. The first call allocates. Errors: as tcp_listener::accept, and as tls_address::connect. One
  /// that cannot be established is an error of its own: call it again.
  result<tls_connection> accept(std::chrono::milliseconds timeout, const stop_token& stop = {}) noexcept {
    if (!shaking_) shaking_.reset(new (std::nothrow) handshakes);
    if (!shaking_) return failure(errc::out_of_memory);
    for (const auto deadline = detail::deadline_after(timeout);;) {
      const auto full = take_in();
      if (!full) return failure(full.error());
      if (auto s = shake_hands(); s || s.error() != errc::timed_out) return s;
      if (stop.stop_requested()) return failure(errc::cancelled);
      const auto left = detail::left_until(deadline);
      if (left.count() <= 0) return failure(errc::timed_out);
      handshakes& all = *shaking_;
      for (std::size_t i = 0; i < all.count; ++i)
        all.polled[i] = detail::polled(all.begun[i].stream.native_handle(), all.begun[i].waits_for);
      all.polled[all.count] = detail::polled(listener_.native_handle(), {!*full, false});
      (void)detail::poll_for(all.polled, all.count + 1, std::min(left, detail::wait_step));
    }
  }
  static constexpr std::size_t most_at_once = 64;  ///< connections that shake hands at the same time

 private:
  struct one {
    tls_connection stream;
    io_ready waits_for{};
    detail::budget_watch watch{std::chrono::steady_clock::now()};
  };
  /// The oldest first. Plain arrays, since each type of a vector costs every program that includes this.
  struct handshakes {
    one begun[most_at_once];
    pollfd polled[most_at_once + 1];
    std::size_t count = 0;

    /// Ends those for which `ends` is true. Whether there were any.
    template <class Ends>
    bool remove(Ends ends) noexcept {
      std::size_t kept = 0;
      for (std::size_t i = 0; i < count; ++i) {
        if (ends(begun[i])) continue;
        if (kept != i) begun[kept] = std::move(begun[i]);
        ++kept;
      }
      const bool any = kept != count;
      while (count > kept) begun[--count].stream = {};
      return any;
    }
  };
  /// Accepts those that wait. True: there is no room for more.
  result<bool> take_in() noexcept {
    handshakes& all = *shaking_;
    const auto now = std::chrono::steady_clock::now();
    (void)all.remove([&](one& b) noexcept { return b.watch.over({}, now, {}); });
    for (bool made_room = false;;) {
      if (all.count == most_at_once && !detail::others_wait(listener_.native_handle())) return true;
      auto s = all.count < most_at_once ? accept() : failure(errc::out_of_memory);
      if (s) {
        all.begun[all.count] = {};
        all.begun[all.count++].stream = std::move(*s);
      } else if (s.error() == errc::timed_out) return false;
      else if (s.error() != errc::out_of_memory || all.count == 0) return failure(s.error());
      else if (std::exchange(made_room, true) || !make_room(now)) return true;
    }
  }
  /// Others wait: ends those that are not done after a second.
  bool make_room(std::chrono::steady_clock::time_point now) noexcept {
    detail::room_maker room;
    return shaking_->remove([&](const one& b) noexcept { return room.ends(b.watch, now, {}); });
  }
  /// The first whose handshake is done or has failed. timed_out: there is none.
  result<tls_connection> shake_hands() noexcept {
    handshakes& all = *shaking_;
    for (std::size_t i = 0; i < all.count; ++i) {
      const establishment now = all.begun[i].stream.establish();
      all.begun[i].waits_for = now.waits_for;
      if (now.status == io_status::would_block) continue;
      auto s = std::move(all.begun[i].stream);
      (void)all.remove([&](const one& b) noexcept { return &b == all.begun + i; });
      if (now.status != io_status::ok) return failure(now.code, 0, now.why, now.system);
      return s;
    }
    return failure(errc::timed_out);
  }
  result<tls_connection> secure(result<posix_stream> socket) noexcept {
    if (!socket) return failure(socket.error());
    return tls_connection::server(std::move(*socket), context_);
  }
  tcp_listener listener_;
  tls_context context_;
  std::unique_ptr<handshakes> shaking_{};  // from the first call that waits
};
static_assert(stream_listener<tls_listener, tls_connection>);

/// The addresses of a host, for a program that connects to one after the other without waiting.
class tls_addresses {
 public:
  /// `name`: what the certificate has to have.
  tls_addresses(tcp_addresses addresses, tls_context context, const host_port& name) noexcept
      : addresses_(std::move(addresses)), context_(std::move(context)), name_(name) {}

  /// Whether an address is left.
  bool more() const noexcept { return addresses_.more(); }
  /// As tcp_addresses::start_connect, and out_of_memory.
  result<tls_connection> start_connect() noexcept {
    auto socket = addresses_.start_connect();
    if (!socket) return failure(socket.error());
    return tls_connection::client(std::move(*socket), context_, name_.host.data());
  }

 private:
  tcp_addresses addresses_;
  tls_context context_;
  host_port name_;
};

/// Where `tls` connects to, or what an owner listens on: `net::session::connect(tls_address{"server:8002", context})`.
/// The texts are borrowed.
struct tls_address {
  std::string_view address;  ///< "host:port"; to listen, ":port" is every local address of IPv4
  /// to connect: none means the system's authorities and no certificate. To listen it has a certificate
  tls_context context{};
  /// what the other end's certificate has to have: a name or an address; empty: the host of `address`
  std::string_view name{};
  /// what makes the TCP connection, borrowed; null: tcp_connect
  const dialer* through = nullptr;

  /// Connects and shakes hands. Errors: as tcp_connect, or the dialer's; bad_file: there are no authorities;
  /// invalid_argument: there is no name to check; not_authenticated: one end does not accept the other's certificate,
  /// or its lack; handshake_failed: the other end does not speak TLS, or no version or cipher that we speak. `name` is
  /// then why, in OpenSSL's words.
  result<tls_connection> connect(std::chrono::milliseconds timeout, const stop_token& stop = {}) const noexcept {
    const auto deadline = detail::deadline_after(timeout);
    const auto checked = to_check();
    if (!checked) return failure(checked.error());
    const auto with = own_context();
    if (!with) return failure(with.error());
    auto next = through != nullptr ? through->dial(address, timeout, stop) : tcp_connect(address, deadline, stop);
    if (!next) return failure(next.error());
    auto s = tls_connection::client(std::move(*next), *with, checked->host.data());
    if (!s) return s;
    const auto ok = detail::establish_by(*s, deadline, stop);
    if (ok) return s;
    if (!ok.error().name.empty()) return failure(ok.error());
    return failure(ok.error().code, 0, address, ok.error().system);
  }
  /// For a host that connects. Errors: as connect() before the first byte; unsupported_request: a dialer waits, and a
  /// host does not. Connect on another thread, and let the host adopt() the connection.
  result<tls_addresses> resolve() const noexcept {
    if (through != nullptr) return failure(errc::unsupported_request, 0, std::string_view("a dialer"));
    const auto checked = to_check();
    if (!checked) return failure(checked.error());
    auto with = own_context();
    if (!with) return failure(with.error());
    auto addresses = tcp_addresses::of(address);
    if (!addresses) return failure(addresses.error());
    return tls_addresses(std::move(*addresses), std::move(*with), *checked);
  }
  /// For an owner, or for a program that accepts connections itself. Errors: as tcp_listener::open; invalid_argument:
  /// there is no context, or no certificate in it.
  result<tls_listener> listen() const noexcept {
    if (!context) return failure(errc::invalid_argument, 0, std::string_view("context"));
    if (!context.has_certificate()) return failure(errc::invalid_argument, 0, std::string_view("certificate"));
    auto l = tcp_listener::open(address, 4096);
    if (!l) return failure(l.error());
    return tls_listener(std::move(*l), context);
  }

 private:
  /// The name to check, as a host.
  result<host_port> to_check() const noexcept {
    auto parsed = parse_address(address);
    if (!parsed || name.empty()) return parsed;
    if (name.size() >= parsed->host.size() || name.find('\0') != std::string_view::npos)
      return failure(errc::invalid_argument, 0, name);
    parsed->host = {};
    std::memcpy(parsed->host.data(), name.data(), name.size());
    return parsed;
  }
  result<tls_context> own_context() const noexcept {
    if (context) return context;
    return tls_context::make({});
  }
};

/// Policy for the transport slot: TCP and TLS. An address is a tls_address; in text it is "host:port" with the system's
/// authorities, which are read for each connection then. `Threads`: whether several threads of the caller may run an
/// owner's connections.
template <bool Threads>
struct basic_tls : stream_transport<basic_tls<Threads>, tls_connection, Threads> {
  static constexpr std::string_view scheme = "tls";  ///< of its addresses, as in system/link_url.hpp
  static constexpr bool takes_host_and_port = true;  ///< also without the name of its link
  using listener = tls_listener;  ///< made by tls_address::listen
  static constexpr bool reliable = true;
  static constexpr bool ordered = true;
  static constexpr bool shares_memory = false;
  static constexpr bool encrypted = true;
  static constexpr identity_kind identifies = identity_kind::certificate;
  /// Besides what TCP has: the stream with its record and its peer's names, and what OpenSSL keeps for a connection
  /// (tests/transports/tls_memory.test.cpp).
  static constexpr std::size_t connection_bytes = 112 * 1024;
  /// The same as long as hands are shaken: OpenSSL takes a first message of up to 128 KiB from any client (3.0.19 holds
  /// 3.5 KiB more meanwhile than 3.0.15 did). The accept budget ends it.
  static constexpr std::size_t handshake_bytes = 272 * 1024;
  /// How many may shake hands at a time at one host, which strangers thus cost 68 MiB at most. Others wait among its
  /// connections; the next is of the address that has the fewest. Meanwhile a handshake is ended after 3 s, unless
  /// those that wait are of addresses that have more.
  static constexpr std::size_t most_handshakes = 256;

  /// As tls_address::connect.
  static result<tls_connection> connect(std::string_view address, std::chrono::milliseconds timeout,
                                        const stop_token& stop) noexcept {
    return tls_address{address}.connect(timeout, stop);
  }
  /// As tls_address::resolve.
  static result<tls_addresses> resolve(std::string_view address) noexcept { return tls_address{address}.resolve(); }
  /// Sets the options of a socket that was connected without waiting.
  static void connected(tls_connection& s) noexcept { detail::tune_connected(s.native_handle()); }
};

using tls = basic_tls<false>;  ///< one thread runs an owner's connections
using tls_on_threads = basic_tls<true>;  ///< several threads may run an owner's connections

static_assert(transport<tls> && listening_transport<tls>);

}  // namespace tensorpull
