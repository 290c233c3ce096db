// Connecting to a peer: the addresses of a host, and whose turn it is while none has answered.
#pragma once

#include <tensorpull/std/chrono.hpp>
#include <tensorpull/system/detail/file_descriptor.hpp>
#include <tensorpull/transports/over/udp/udp_address.hpp>

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace tensorpull::detail {

struct udp_address_of_family {
  udp_address to;
  int family;
};
/// False: errno is why.
inline bool connect_to(int fd, const udp_address& peer, int family) noexcept {
  sockaddr_storage to{};
  const socklen_t size = system_address_of(peer, family, to);
  return ::connect(fd, reinterpret_cast<const sockaddr*>(&to), size) == 0;
}
/// Whether the system sends to the peer from the address that the peer has sent to.
inline bool is_answered_from_there(const udp_address& peer, int family) noexcept {
  if (peer.local == std::array<std::uint8_t, 16>{}) return true;
  const file_descriptor fd(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t n = sizeof own;
  return fd && connect_to(fd.get(), peer, family) &&
         ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &n) == 0 && udp_address_of(own).host == peer.local;
}

/// One after the other, in rounds. A turn that is over in silence takes twice as long in the next round.
class udp_turns {
  using clock = std::chrono::steady_clock;

 public:
  static constexpr std::size_t most = 4;  ///< addresses that are used

  /// Whether there is room for another one.
  bool has_room() const noexcept { return count_ < most; }
  void add(const udp_address_of_family& one) noexcept { all_[count_++] = one; }
  /// The next one; nullptr: each has had its turn in this round.
  const udp_address_of_family* next() noexcept {
    if (began_ != clock::time_point{}) began_ = clock::now();
    return next_ < count_ ? &all_[next_++] : nullptr;
  }
  /// Something is sent to the one whose turn it is, and nothing has come from there. Whether the turn is over, since
  /// another one may answer.
  bool is_over() noexcept {
    if (count_ < 2) return false;
    const auto now = clock::now();
    if (began_ == clock::time_point{}) began_ = now;
    if (now - began_ < turn_) return false;
    if (next_ == count_) next_ = 0, turn_ *= 2;
    return true;
  }

 private:
  std::array<udp_address_of_family, most> all_{};
  std::size_t count_ = 0, next_ = 0;
  std::chrono::seconds turn_{3};  // as of an address that TCP connects to
  clock::time_point began_{};  // nothing was sent yet: none
};

}  // namespace tensorpull::detail
