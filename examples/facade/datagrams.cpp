// The links of datagrams of the ground floor: UDP and serial lines.
#include "datagrams.hpp"

#include <tensorpull/transports/over/serial/serial.hpp>
#include <tensorpull/transports/over/udp/udp.hpp>

namespace tensorpull::facade {
namespace {

/// For an owner: UDP with a bell, so that a program's calls do not wait for the thread that serves.
struct udp_with_bell : datagram_transport<udp_with_bell, link_with_bell<udp::link>> {
  static constexpr std::string_view any_address = udp::any_address;
  static result<link> open(std::string_view address) noexcept {
    auto made = udp::open(address);
    return made ? result<link>(link(std::move(*made))) : result<link>(failure(made.error()));
  }
};

}  // namespace

extern const link_kind link_udp = datagram_kind<udp>({.port = true}, &own_in_datagrams<udp_with_bell>),
                       link_serial = datagram_kind<serial>({}, &own_in_datagrams<serial, 1>);

}  // namespace tensorpull::facade
