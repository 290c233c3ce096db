// Unix sockets: programs of one machine, each of which the kernel names to the other. For an owner, or for many
// connections, include transports/host/owner.hpp or host.hpp, too.
#pragma once

#include <tensorpull/transports/over/stream_transport.hpp>
#include <tensorpull/transports/over/unix_socket/unix_connect.hpp>
#include <tensorpull/transports/over/unix_socket/unix_listener.hpp>

namespace tensorpull {

/// Policy for the transport slot. Addresses are paths, or "@name" for an abstract name (unix_address.hpp). `Access`:
/// the programs that may be at the other end. It holds for both ends: an owner serves no others, and a recipient takes
/// nothing from a socket that another user has put there. `Threads`: whether several threads of the caller may run an
/// owner's connections. An owner's options have to name an address.
template <unix_access Access, bool Threads>
struct basic_unix_socket : stream_transport<basic_unix_socket<Access, Threads>, unix_stream, Threads> {
  static constexpr std::string_view scheme = "unix";  ///< of its addresses, as in system/link_url.hpp
  static constexpr identity_kind identifies = identity_kind::user;

  /// As unix_connect.
  static result<unix_stream> connect(std::string_view address, std::chrono::milliseconds timeout,
                                     const stop_token& stop) noexcept {
    return unix_connect(address, timeout, stop, Access);
  }
  /// As unix_destination::of.
  static result<unix_destination> resolve(std::string_view address) noexcept {
    return unix_destination::of(address, Access);
  }
  /// As unix_listener::open.
  static result<unix_listener> listen(std::string_view address) noexcept {
    return unix_listener::open(address, Access, 4096);
  }
};

/// this user's programs; one thread runs an owner's connections
using unix_socket = basic_unix_socket<unix_access::same_user, false>;
/// the same; several threads may run an owner's connections
using unix_socket_on_threads = basic_unix_socket<unix_access::same_user, true>;

static_assert(transport<unix_socket> && listening_transport<unix_socket>);

}  // namespace tensorpull
