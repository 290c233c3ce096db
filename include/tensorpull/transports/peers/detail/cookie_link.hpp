// The common part of both ends of a link whose datagrams begin with a cookie.
#pragma once

#include <tensorpull/links/datagram_link.hpp>
#include <tensorpull/pull/detail/take_datagram.hpp>
#include <tensorpull/transports/peers/cookie.hpp>

#include <cstring>
#include <utility>

namespace tensorpull::detail {

/// A link to one peer. `Self` has `next(most, take)`, which gives `take` the frames of the peer's next datagram, at
/// most `most` bytes; and `put(spans, send)`, which gives `send(spans, to)` the spans behind the word.
template <class Self, datagram_link Link>
class cookie_link {
 public:
  using address = only_peer;  ///< the other end
  /// what the cookie leaves
  static constexpr std::size_t max_datagram_bytes = Link::max_datagram_bytes - cookie_bytes;
  static constexpr bool checked = Link::checked;  ///< as the link below
  static constexpr bool addresses_are_proved = true;  ///< by the cookie

  /// The longest datagram now.
  std::size_t datagram_bytes() const noexcept { return link_.datagram_bytes() - cookie_bytes; }
  /// The link below.
  Link& below() noexcept { return link_; }
  /// The same.
  const Link& below() const noexcept { return link_; }

  /// As datagram_link asks.
  io_result receive(std::span<std::byte> memory, address&) noexcept {
    return self().next(memory.size(), [&](std::span<const std::byte> frames) noexcept {
      std::memcpy(memory.data(), frames.data(), frames.size());
    });
  }
  /// The same without a copy, if the link below can do that.
  io_result receive_in_place(std::span<const std::byte>& datagram, address&) noexcept
    requires receives_in_place<Link>
  {
    return self().next(max_datagram_bytes, [&](std::span<const std::byte> frames) noexcept { datagram = frames; });
  }
  /// As datagram_link asks.
  io_result send(gather_list spans, const address&) noexcept {
    return self().put(spans, [this](auto all, const auto& to) noexcept { return link_.send(all, to); });
  }
  /// The same, but the datagram may leave later, with others, if the link below can do that.
  io_result collect(gather_list spans, const address&) noexcept
    requires collects<Link>
  {
    return self().put(spans, [this](auto all, const auto& to) noexcept { return link_.collect(all, to); });
  }
  /// As datagram_link asks.
  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    return link_.wait(read, write, timeout);
  }

 protected:
  static constexpr int most_dropped = 64;  // in one call: strangers that send without end must not keep the caller

  explicit cookie_link(Link link) noexcept : link_(std::move(link)) {}

  Link link_;

 private:
  Self& self() noexcept { return static_cast<Self&>(*this); }
};

}  // namespace tensorpull::detail
