// The IP address at the other end of a socket, without its port.
#pragma once

#include <tensorpull/core/byte_order.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tensorpull {

namespace detail {
/// A socket's address as IPv6, with IPv4 addresses mapped (RFC 4291, 2.5.5.2). The unspecified address if it is not an
/// internet socket.
inline in6_addr address_of(const sockaddr_storage& s) noexcept {
  in6_addr out{};
  if (s.ss_family == AF_INET6) return reinterpret_cast<const sockaddr_in6&>(s).sin6_addr;
  if (s.ss_family == AF_INET) {
    out.s6_addr[10] = out.s6_addr[11] = 0xff;
    std::memcpy(out.s6_addr + 12, &reinterpret_cast<const sockaddr_in&>(s).sin_addr, 4);
  }
  return out;
}
}  // namespace detail

/// An IP address: of version 6, or of version 4 as ::ffff:a.b.c.d, however a socket has it. Or none, which is "::". A
/// plain value; nothing allocates.
class ip_address {
 public:
  /// Its digits, zero-terminated: "192.0.2.1" or "2001:db8::1", without brackets. Converts to a view of itself.
  struct text {
    std::array<char, INET6_ADDRSTRLEN> characters{};  ///< with a zero at the end
    operator std::string_view() const noexcept { return characters.data(); }
  };

  constexpr ip_address() noexcept = default;
  /// None: it is of no internet socket.
  explicit ip_address(const sockaddr_storage& of) noexcept : bytes_(detail::address_of(of)) {}
  /// The address of the other end. None: the socket is of another kind, or not connected. Cost: a system call.
  static ip_address of_peer(int socket) noexcept {
    sockaddr_storage a{};
    socklen_t size = sizeof a;
    return ::getpeername(socket, reinterpret_cast<sockaddr*>(&a), &size) == 0 ? ip_address(a) : ip_address();
  }
  /// The address that these digits spell, of either version, zero-terminated and without brackets. None: they spell
  /// none; no name is looked up.
  static ip_address of_digits(const char* digits) noexcept {
    sockaddr_storage a{};
    a.ss_family = AF_INET;
    if (::inet_pton(AF_INET, digits, &reinterpret_cast<sockaddr_in&>(a).sin_addr) == 1) return ip_address(a);
    a.ss_family = AF_INET6;
    if (::inet_pton(AF_INET6, digits, &reinterpret_cast<sockaddr_in6&>(a).sin6_addr) == 1) return ip_address(a);
    return {};
  }

  explicit operator bool() const noexcept { return !IN6_IS_ADDR_UNSPECIFIED(&bytes_); }
  /// Whether it is of version 4.
  bool is_v4() const noexcept { return IN6_IS_ADDR_V4MAPPED(&bytes_) != 0; }
  /// Its 16 bytes in the order of the network; of version 4, the last four.
  const std::uint8_t* bytes() const noexcept { return bytes_.s6_addr; }
  /// A number for its network, by which one party is told from another: all of version 4, and the first 64
  /// bits of version 6, since one machine has all that follow.
  std::uint64_t neighbourhood() const noexcept {
    return is_v4() ? load_le32(bytes_.s6_addr + 12) : load_le64(bytes_.s6_addr);
  }
  /// Its digits; those of version 4 as such.
  text to_text() const noexcept {
    text t;
    (void)::inet_ntop(is_v4() ? AF_INET : AF_INET6, bytes_.s6_addr + (is_v4() ? 12 : 0), t.characters.data(),
                      static_cast<socklen_t>(t.characters.size()));
    return t;
  }

  friend bool operator==(const ip_address& a, const ip_address& b) noexcept {
    return std::memcmp(&a.bytes_, &b.bytes_, sizeof a.bytes_) == 0;
  }

 private:
  in6_addr bytes_{};
};

}  // namespace tensorpull
