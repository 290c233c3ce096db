// Serial lines: one recipient and one owner at the ends of a wire. Includes all of it: pulls, sessions and owners.
#pragma once

#include <tensorpull/transports/over/datagram_transport.hpp>
#include <tensorpull/transports/over/serial/serial_line.hpp>
#include <tensorpull/transports/peers/owner.hpp>
#include <tensorpull/transports/session/datagram_session.hpp>

namespace tensorpull {

/// Policy for the transport slot. Addresses are those of parse_serial_address():
/// "/dev/ttyUSB0?speed=115200&flow=rtscts". `Bytes`: of the longest datagram, at both ends. A longer one wastes less on
/// prefixes, 80 bytes for each chunk; a shorter one loses less to noise.
template <std::size_t Bytes = 640>
struct basic_serial : datagram_transport<basic_serial<Bytes>, serial_line<Bytes>> {
  static constexpr std::string_view scheme = "serial";  ///< of its addresses, as in system/link_url.hpp
  /// As serial_line::connect: it sends nothing and waits for nobody.
  static result<serial_line<Bytes>> connect(std::string_view address, std::chrono::milliseconds,
                                            const stop_token&) noexcept {
    return serial_line<Bytes>::connect(address);
  }
  /// As serial_line::open.
  static result<serial_line<Bytes>> open(std::string_view address) noexcept {
    return serial_line<Bytes>::open(address);
  }
};

/// With datagrams that hold a chunk of 512 bytes. For chunks of 2 KiB: basic_serial<2304>.
using serial = basic_serial<>;

static_assert(transport<serial>);

}  // namespace tensorpull
