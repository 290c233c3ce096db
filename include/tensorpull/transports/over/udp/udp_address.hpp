// Where a UDP datagram comes from and goes to.
#pragma once

#include <tensorpull/core/splitmix64.hpp>

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstring>

namespace tensorpull {

/// An address of IPv6, or of IPv4 as ::ffff:a.b.c.d, and a port. Compares equal to the same address in the other form
/// of the system.
struct udp_address {
  std::array<std::uint8_t, 16> host{};  ///< in the network's order
  /// the address of this machine that the other end has sent to, and that it is answered from. Empty, if the socket has
  /// only one
  std::array<std::uint8_t, 16> local{};
  std::uint32_t scope = 0;  ///< the interface of a link-local address
  std::uint32_t port = 0;  ///< in the machine's order

  friend constexpr bool operator==(const udp_address&, const udp_address&) noexcept = default;

  /// Spreads addresses over a table. It is no secret.
  std::uint64_t hash() const noexcept {
    std::uint64_t words[5];
    static_assert(sizeof words == sizeof *this);
    std::memcpy(words, this, sizeof words);
    std::uint64_t h = 0;
    for (const std::uint64_t w : words) h = splitmix64{h ^ w}();
    return h;
  }
};

namespace detail {

/// An address of IPv4 as ::ffff:a.b.c.d.
inline void map_v4(const in_addr& from, std::array<std::uint8_t, 16>& to) noexcept {
  to[10] = to[11] = 0xff;
  std::memcpy(to.data() + 12, &from, 4);
}

/// The address of the system's. A family that is not of the Internet gives the empty address.
inline udp_address udp_address_of(const sockaddr_storage& from) noexcept {
  udp_address a;
  if (from.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
    std::memcpy(a.host.data(), &v6.sin6_addr, 16);
    a.scope = v6.sin6_scope_id;
    a.port = ntohs(v6.sin6_port);
  } else if (from.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
    map_v4(v4.sin_addr, a.host);
    a.port = ntohs(v4.sin_port);
  }
  return a;
}

/// The same address for a socket of the family; the bytes of it.
inline socklen_t system_address_of(const udp_address& a, int family, sockaddr_storage& out) noexcept {
  if (family == AF_INET) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(out);
    v4 = {};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<std::uint16_t>(a.port));
    std::memcpy(&v4.sin_addr, a.host.data() + 12, 4);
    return sizeof v4;
  }
  auto& v6 = reinterpret_cast<sockaddr_in6&>(out);
  v6 = {};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(static_cast<std::uint16_t>(a.port));
  v6.sin6_scope_id = a.scope;
  std::memcpy(&v6.sin6_addr, a.host.data(), 16);
  return sizeof v6;
}

/// Room for a message's word about the address of this machine.
inline constexpr std::size_t local_control_bytes = CMSG_SPACE(sizeof(in6_pktinfo));
static_assert(sizeof(in_pktinfo) <= sizeof(in6_pktinfo));

/// Has a socket that is bound to every local address report to which one a datagram was sent.
inline void ask_for_local_address(int fd, int family) noexcept {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return;
  const udp_address a = udp_address_of(bound);
  for (std::size_t i = family == AF_INET ? 12 : 0; i < a.host.size(); ++i)
    if (a.host[i] != 0) return;
  const int on = 1;
  if (family == AF_INET) (void)::setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
  else (void)::setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on);
}
/// Takes from a received message to which address of this machine it was sent. A multicast group cannot be answered
/// from.
inline void take_local_address(const cmsghdr& c, udp_address& a) noexcept {
  if (c.cmsg_level == IPPROTO_IP && c.cmsg_type == IP_PKTINFO) {
    in_pktinfo about;
    std::memcpy(&about, CMSG_DATA(&c), sizeof about);
    map_v4(about.ipi_spec_dst, a.local);
  } else if (c.cmsg_level == IPPROTO_IPV6 && c.cmsg_type == IPV6_PKTINFO) {
    in6_pktinfo about;
    std::memcpy(&about, CMSG_DATA(&c), sizeof about);
    if (!IN6_IS_ADDR_MULTICAST(&about.ipi6_addr)) std::memcpy(a.local.data(), &about.ipi6_addr, 16);
  }
}
/// Has a message that is sent leave from the same address; writes the request for it to `c`, which has
/// local_control_bytes of room. Bytes of it; 0: the system chooses the address.
inline std::size_t put_local_address(const udp_address& a, int family, cmsghdr* c) noexcept {
  if (a.local == std::array<std::uint8_t, 16>{}) return 0;
  const auto put = [&](int level, int type, const auto& about) {
    c->cmsg_level = level;
    c->cmsg_type = type;
    c->cmsg_len = CMSG_LEN(sizeof about);
    std::memcpy(CMSG_DATA(c), &about, sizeof about);
    return CMSG_SPACE(sizeof about);
  };
  if (family == AF_INET) {
    in_pktinfo about{};
    std::memcpy(&about.ipi_spec_dst, a.local.data() + 12, 4);
    return put(IPPROTO_IP, IP_PKTINFO, about);
  }
  in6_pktinfo about{};
  std::memcpy(&about.ipi6_addr, a.local.data(), 16);
  about.ipi6_ifindex = a.scope;
  return put(IPPROTO_IPV6, IPV6_PKTINFO, about);
}

}  // namespace detail
}  // namespace tensorpull
