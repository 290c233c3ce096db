// The end of a link that waits to be called by one peer, for links whose addresses are not proved.
#pragma once

#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/system/entropy.hpp>
#include <tensorpull/transports/peers/detail/cookie_link.hpp>

#include <array>
#include <utility>

namespace tensorpull {

/// A link that everybody can send to, as a link to one peer: the other end of a guest_link, for one connection. The
/// peer is the first that proves its address and sends something that counts at the endpoint. Before that, the first
/// that proves its address is answered, and then the last that has sent a valid datagram. Any other sender is told its
/// word and nothing more, and nothing at all if the link can keep_to() the peer.
template <datagram_link Link>
  requires(!Link::addresses_are_proved)
class called_link : public detail::cookie_link<called_link<Link>, Link> {
  using base = detail::cookie_link<called_link, Link>;
  using base::link_, base::most_dropped;

 public:
  /// Takes over a link to everybody.
  explicit called_link(Link link) noexcept : base(std::move(link)), door_(system_entropy{}, clock::now()) {}

  /// The sender of the last datagram is answered from now on; `for_good`: nobody else is any more. Called by
  /// step_datagrams.
  void answer_last(bool for_good) noexcept {
    peer_ = last_;
    word_ = last_word_;
    if constexpr (requires { link_.keep_to(peer_); })
      if (for_good && !met_) link_.keep_to(peer_);
    met_ = met_ || for_good;
  }
  /// Sends a datagram that the peer throws away, so that what lies between remembers the path. Before anybody has
  /// called, none.
  void keep_path() noexcept {
    (void)put({}, [this](auto all, const auto& to) noexcept { return link_.send(all, to); });
  }

 private:
  friend base;
  using clock = std::chrono::steady_clock;

  /// Gives `take` the frames of the peer's next datagram, at most `most` bytes.
  template <class Take>
  io_result next(std::size_t most, Take take) noexcept {
    door_.pass_time(system_entropy{}, clock::now());
    detail::datagram_memory<Link> memory;
    for (int tries = 0; tries < most_dropped; ++tries) {
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
      if (worth == cookie_verdict::wrong || n == 0 || n > most || (met_ && from != peer_)) continue;
      last_ = from;
      last_word_ = cookie_in(whole);
      if (word_ == 0) answer_last(false);
      take(whole.subspan(cookie_bytes));
      return {io_status::ok, 0, n};
    }
    return {io_status::would_block, 0, 0};
  }
  template <class Send>
  io_result put(gather_list spans, Send send) noexcept {
    // before anybody has called, it is dropped
    if (word_ == 0) return {};
    return detail::send_behind(word_, spans, [&](auto all) noexcept { return send(all, peer_); });
  }

  cookie_door door_;
  typename Link::address peer_{}, last_{};
  std::uint64_t word_ = 0, last_word_ = 0;  // the peer's, 0: nobody has called; that of the last datagram
  bool met_ = false;
};

}  // namespace tensorpull
