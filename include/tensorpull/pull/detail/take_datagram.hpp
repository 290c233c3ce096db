// The steps of drivers with a link: take the next datagram without a copy, and send several in one call if the link
// can.
#pragma once

#include <tensorpull/links/datagram_link.hpp>

#include <array>
#include <cstring>

namespace tensorpull::detail {

/// Whether the link gives datagrams in its own memory: `io_result receive_in_place(std::span<const std::byte>&
/// datagram, address& from) noexcept`, aligned to 8 bytes and valid until the next call.
template <class Link>
concept receives_in_place = requires(Link& l, std::span<const std::byte>& d, typename Link::address& from) {
  { l.receive_in_place(d, from) } noexcept -> std::same_as<io_result>;
};

/// Memory for a datagram: none if the link has its own.
template <datagram_link Link>
struct datagram_memory {
  alignas(8) std::array<std::byte, receives_in_place<Link> ? 8 : Link::max_datagram_bytes> bytes;
};

/// As the link's receive(). The datagram lies in `memory` or in the link, aligned to 8 bytes, and is valid until the
/// next call.
template <datagram_link Link>
io_result take_datagram(Link& link, datagram_memory<Link>& memory, std::span<const std::byte>& datagram,
                        typename Link::address& from) noexcept {
  if constexpr (receives_in_place<Link>) {
    return link.receive_in_place(datagram, from);
  } else {
    const io_result io = link.receive(memory.bytes, from);
    if (io.status == io_status::ok) datagram = std::span<const std::byte>(memory.bytes).first(io.bytes);
    return io;
  }
}

/// receive() of a link whose datagrams are in its own memory. One that is longer than `memory` is lost.
template <class Link>
io_result receive_copy(Link& link, std::span<std::byte> memory, typename Link::address& from) noexcept {
  std::span<const std::byte> one;
  io_result io;
  do io = link.receive_in_place(one, from);
  while (io.status == io_status::ok && one.size() > memory.size());
  if (io.status == io_status::ok) std::memcpy(memory.data(), one.data(), one.size());
  return io;
}

/// Whether the link can keep datagrams until others leave with them: `io_result collect(spans, to) noexcept`, as
/// send(). They leave at the latest with the next receive() that finds nothing, or wait().
template <class Link>
concept collects = requires(Link& l, gather_list s, const typename Link::address& to) {
  { l.collect(s, to) } noexcept -> std::same_as<io_result>;
};

/// As the link's send(), or its collect().
template <datagram_link Link>
io_result send_or_collect(Link& link, gather_list spans, const typename Link::address& to) noexcept {
  if constexpr (collects<Link>) return link.collect(spans, to);
  else return link.send(spans, to);
}

}  // namespace tensorpull::detail
