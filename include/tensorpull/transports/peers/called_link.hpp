// The end of a link that waits to be called by one peer, for links whose addresses are not proved.
#pragma once

#include <tensorpull/links/datagram_link.hpp>
#include <tensorpull/pull/detail/take_datagram.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/system/entropy.hpp>
#include <tensorpull/transports/peers/cookie.hpp>

#include <array>
#include <utility>

namespace tensorpull {

/// A link that everybody can send to, as a link whose one address is the first peer that proves its own: the other end
/// of a guest_link, for one connection. Any other sender is told its word and nothing more.
template <datagram_link Link>
  requires(!Link::addresses_are_proved)
class called_link {
 public:
  using address = only_peer;  ///< the first that proved its address
  /// what the cookie leaves
  static constexpr std::size_t max_datagram_bytes = Link::max_datagram_bytes - cookie_bytes;
  static constexpr bool checked = Link::checked;  ///< as the link below
  static constexpr bool addresses_are_proved = true;  ///< by the cookie

  /// Takes over a link to everybody.
  explicit called_link(Link link) noexcept : link_(std::move(link)), door_(system_entropy{}, clock::now()) {}

  /// The longest datagram now.
  std::size_t datagram_bytes() const noexcept { return link_.datagram_bytes() - cookie_bytes; }
  /// The link below.
  const Link& below() const noexcept { return link_; }

  /// As datagram_link asks.
  io_result receive(std::span<std::byte> memory, address&) noexcept {
    return next(memory.size(), [&](std::span<const std::byte> frames) noexcept {
      std::memcpy(memory.data(), frames.data(), frames.size());
    });
  }
  /// The same without a copy, if the link below can do that.
  io_result receive_in_place(std::span<const std::byte>& datagram, address&) noexcept
    requires detail::receives_in_place<Link>
  {
    return next(max_datagram_bytes, [&](std::span<const std::byte> frames) noexcept { datagram = frames; });
  }
  /// As datagram_link asks. Before anybody has called, it is dropped.
  io_result send(gather_list spans, const address&) noexcept {
    return put(spans, [this](auto all) noexcept { return link_.send(all, peer_); });
  }
  /// The same, but the datagram may leave later, with others, if the link below can do that.
  io_result collect(gather_list spans, const address&) noexcept
    requires detail::collects<Link>
  {
    return put(spans, [this](auto all) noexcept { return link_.collect(all, peer_); });
  }
  /// As datagram_link asks.
  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    return link_.wait(read, write, timeout);
  }

 private:
  using clock = std::chrono::steady_clock;
  static constexpr int most_dropped = 64;

  /// Gives `take` the frames of the peer's next datagram, at most `most` bytes.
  template <class Take>
  io_result next(std::size_t most, Take take) noexcept {
    door_.pass_time(system_entropy{}, clock::now());
    detail::datagram_memory<Link> memory;
    for (int tries = 0; tries < most_dropped; ++tries) {
      // strangers that send without end must not keep the caller here
      std::span<const std::byte> whole;
      typename Link::address from;
      const io_result io = detail::take_datagram(link_, memory, whole, from);
      if (io.status != io_status::ok) return io;
      const auto worth = whole.size() < cookie_bytes ? cookie_verdict::wrong : door_.check(from, cookie_in(whole));
      if (worth != cookie_verdict::right) {
        const cookie_answer answer = door_.answer(from, whole);
        const std::array alone{answer.bytes()};
        if (!alone[0].empty()) (void)link_.send(alone, from);
      }
      const std::size_t n = whole.size() - std::min(whole.size(), cookie_bytes);
      if (worth == cookie_verdict::wrong || n == 0 || n > most || (word_ != 0 && from != peer_)) continue;
      peer_ = from;
      word_ = cookie_in(whole);
      take(whole.subspan(cookie_bytes));
      return {io_status::ok, 0, n};
    }
    return {io_status::would_block, 0, 0};
  }
  template <class Send>
  io_result put(gather_list spans, Send send) noexcept {
    return word_ != 0 ? detail::send_behind(word_, spans, send) : io_result{};
  }

  Link link_;
  cookie_door door_;
  typename Link::address peer_{};
  std::uint64_t word_ = 0;  // the peer's; 0: nobody has called
};

}  // namespace tensorpull
