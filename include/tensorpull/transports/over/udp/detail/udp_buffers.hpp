// The datagrams of a UDP socket that have arrived together, and those that leave together.
#pragma once

#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/transports/over/udp/udp_address.hpp>

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tensorpull::detail {

/// Datagrams of one sender, one after the other in the buffer, `step` bytes each but the last.
struct udp_incoming {
  udp_address from;
  std::uint32_t at, left, step;
};
struct udp_outgoing {
  udp_address to;
  std::uint32_t at, bytes;
};
/// Room for the control data of one message.
template <std::size_t Room>
struct alignas(cmsghdr) control_bytes {
  char bytes[Room];
};
struct udp_buffers {
  static constexpr std::size_t most_staged = 256, most_received = 32;
  alignas(64) std::array<std::byte, 64 * 1024> receive, send;
  std::array<udp_outgoing, most_staged> out;
  std::array<udp_incoming, most_received> in;
  std::size_t staged = 0, sent = 0, used = 0, come = 0, taken = 0;
  // the kernel has not taken the datagrams from `doubted` to before `tried` together
  std::size_t doubted = 0, tried = 0;

  /// The next datagram, which is cut off from those that arrived in one piece. It is moved back to a multiple of 8
  /// bytes, over the end of the one before, which is not used any more.
  std::span<const std::byte> next_datagram() noexcept {
    udp_incoming& i = in[taken];
    const std::size_t bytes = std::min<std::size_t>(i.left, i.step);
    std::byte* const came = receive.data() + i.at;
    std::byte* const aligned = receive.data() + i.at / 8 * 8;
    if (aligned != came) std::memmove(aligned, came, bytes);
    i.at += static_cast<std::uint32_t>(bytes);
    i.left -= static_cast<std::uint32_t>(bytes);
    if (i.left == 0) ++taken;
    return {aligned, bytes};
  }
};

}  // namespace tensorpull::detail
