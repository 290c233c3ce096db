// TCP. Recipients and sessions wait on plain sockets; for an owner, or for many connections, include
// transports/host/owner.hpp or host.hpp.
#pragma once

#include <tensorpull/transports/over/stream_transport.hpp>
#include <tensorpull/transports/over/tcp/tcp_connect.hpp>
#include <tensorpull/transports/over/tcp/tcp_listener.hpp>

namespace tensorpull {

/// Policy for the transport slot. `Threads`: whether several threads of the caller may run an owner's connections.
template <bool Threads>
struct basic_tcp : stream_transport<basic_tcp<Threads>, posix_stream, Threads> {
  static constexpr std::string_view scheme = "tcp";  ///< of its addresses, as in system/link_url.hpp
  /// The address of an owner if its options name none: a free port of the loopback interface.
  static constexpr std::string_view any_address = "127.0.0.1:0";

  /// As tcp_connect.
  static result<posix_stream> connect(std::string_view address, std::chrono::milliseconds timeout,
                                      const stop_token& stop) noexcept {
    return tcp_connect(address, detail::deadline_after(timeout), stop);
  }
  /// As tcp_addresses::of.
  static result<tcp_addresses> resolve(std::string_view address) noexcept { return tcp_addresses::of(address); }
  /// Sets the options of a socket that was connected without waiting.
  static void connected(posix_stream& s) noexcept { detail::tune_connected(s.native_handle()); }
  /// As tcp_listener::open.
  static result<tcp_listener> listen(std::string_view address) noexcept { return tcp_listener::open(address, 4096); }
};

using tcp = basic_tcp<false>;  ///< one thread runs an owner's connections
using tcp_on_threads = basic_tcp<true>;  ///< several threads may run an owner's connections

static_assert(transport<tcp> && listening_transport<tcp>);

}  // namespace tensorpull
