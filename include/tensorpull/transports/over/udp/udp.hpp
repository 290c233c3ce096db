// UDP: many recipients on one socket, on the caller's thread. Includes all of it: pulls, sessions and owners.
#pragma once

#include <tensorpull/transports/over/datagram_transport.hpp>
#include <tensorpull/transports/over/udp/udp_link.hpp>
#include <tensorpull/transports/peers/owner.hpp>
#include <tensorpull/transports/session/datagram_session.hpp>

namespace tensorpull {

/// Policy for the transport slot. `Bytes`: of the longest datagram (basic_udp_link); both ends have to agree that the
/// network between them carries it.
template <std::size_t Bytes = 1200>
struct basic_udp : datagram_transport<basic_udp<Bytes>, basic_udp_link<Bytes>> {
  static constexpr std::string_view scheme = "udp";  ///< of its addresses, as in system/link_url.hpp
  static constexpr bool takes_host_and_port = true;  ///< also without the name of its link
  /// The address of an owner if its options name none: a free port of the loopback interface.
  static constexpr std::string_view any_address = "127.0.0.1:0";

  /// As basic_udp_link::connect: it sends nothing and waits for nobody.
  static result<basic_udp_link<Bytes>> connect(std::string_view address, std::chrono::milliseconds,
                                               const stop_token&) noexcept {
    return basic_udp_link<Bytes>::connect(address);
  }
  /// As basic_udp_link::open.
  static result<basic_udp_link<Bytes>> open(std::string_view address) noexcept {
    return basic_udp_link<Bytes>::open(address);
  }
};

/// With datagrams of 1,200 bytes, which almost every network carries.
using udp = basic_udp<>;

static_assert(transport<udp>);

}  // namespace tensorpull
