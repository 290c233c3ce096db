// Where a UDP datagram comes from and goes to.
#pragma once

#include <tensorpull/core/splitmix64.hpp>

#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <cstring>

namespace tensorpull {

/// An address of IPv6, or of IPv4 as ::ffff:a.b.c.d, and a port. Compares equal to the same address in the other form
/// of the system.
struct udp_address {
  std::array<std::uint8_t, 16> host{};  ///< in the network's order
  std::uint32_t scope = 0;              ///< the interface of a link-local address
  std::uint32_t port = 0;               ///< in the machine's order

  friend constexpr bool operator==(const udp_address&, const udp_address&) noexcept = default;

  /// Spreads addresses over a table. It is no secret.
  std::uint64_t hash() const noexcept {
    std::uint64_t words[3];
    static_assert(sizeof words == sizeof *this);
    std::memcpy(words, this, sizeof words);
    std::uint64_t h = 0;
    for (const std::uint64_t w : words) h = splitmix64{h ^ w}();
    return h;
  }
};

namespace detail {

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
    a.host[10] = a.host[11] = 0xff;
    std::memcpy(a.host.data() + 12, &v4.sin_addr, 4);
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

}  // namespace detail
}  // namespace tensorpull
