// The end of a link that has called a door: puts the cookie in front of datagrams that leave, and takes it off those
// that arrive.
#pragma once

#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/system/entropy.hpp>
#include <tensorpull/transports/peers/detail/cookie_link.hpp>

#include <array>
#include <utility>

namespace tensorpull {

/// A link to one peer whose addresses are not proved, as a link whose one address is: drivers of one connection need
/// not know of cookies. While it cannot know that the door's word is the door's, it keeps the last datagram and sends
/// it again with the word, so that a connection costs one round trip and no time-out.
template <datagram_link Link>
  requires(!Link::addresses_are_proved)
class guest_link : public detail::cookie_link<guest_link<Link>, Link> {
  using base = detail::cookie_link<guest_link, Link>;
  using base::link_, base::most_dropped;

 public:
  /// Takes over a link that exchanges datagrams with one peer. `random`: 64 bits that nobody can guess.
  explicit guest_link(Link link, std::uint64_t random = system_entropy{}()) noexcept
      : base(std::move(link)), guest_(random) {}

  /// Sends a datagram that the door answers with its word, so that firewalls and address translators between the ends
  /// remember the path in both directions.
  void keep_path() noexcept { ask(); }

 private:
  friend base;

  /// Gives `take` the frames of the door's next datagram, at most `most` bytes.
  template <class Take>
  io_result next(std::size_t most, Take take) noexcept {
    detail::datagram_memory<Link> memory;
    for (int tries = 0; tries < most_dropped; ++tries) {
      std::span<const std::byte> whole;
      typename Link::address from;
      const io_result io = detail::take_datagram(link_, memory, whole, from);
      if (io.status != io_status::ok) return io;
      const auto frames = opened(whole);
      if (frames.empty() || frames.size() > most) continue;
      take(frames);
      return {io_status::ok, 0, frames.size()};
    }
    return {io_status::would_block, 0, 0};
  }
  std::span<const std::byte> opened(std::span<const std::byte> datagram) noexcept {
    const auto frames = guest_.open(datagram);
    const bool changed = guest_.changed();
    // a word that is not proved may be anybody's: what is kept is sent with the first of them only, so that forged ones
    // cost little, and again with the word that is proved
    if (changed && kept_ > 0 && (guest_.proved() || !std::exchange(tried_, true))) {
      const std::array again{std::span<const std::byte>(first_).first(kept_)};
      (void)detail::send_behind(guest_.word(), again, [this](auto all) noexcept { return link_.send(all, {}); });
    }
    if (changed && !guest_.proved()) ask();
    if (guest_.proved() || !frames.empty()) {
      keeps_ = false;
      kept_ = 0;
    }
    return frames;
  }
  void keep(gather_list spans) noexcept {
    kept_ = 0;
    for (const auto& s : spans) {
      if (s.size() > first_.size() - kept_) {
        kept_ = 0;
        return;
      }
      if (!s.empty()) std::memcpy(first_.data() + kept_, s.data(), s.size());
      kept_ += s.size();
    }
  }
  /// Asks for the word once more, since somebody else may have made up the one that has arrived. The answer puts that
  /// right, even if the first answer was lost, and with doors that echo nothing.
  void ask() noexcept {
    const std::uint64_t number = guest_.number();
    constexpr std::array<std::byte, cookie_door::least_answered_bytes - cookie_bytes> nothing{};
    const std::array<std::span<const std::byte>, 2> question{std::as_bytes(std::span(&number, 1)), nothing};
    (void)link_.send(question, {});
  }
  template <class Send>
  io_result put(gather_list spans, Send send) noexcept {
    if (keeps_) keep(spans);
    return detail::send_behind(guest_.word(), spans,
                               [&](auto all) noexcept { return send(all, typename Link::address{}); });
  }

  cookie_guest guest_;
  // the last datagram before the door has answered, if it is no longer
  std::array<std::byte, std::min<std::size_t>(base::max_datagram_bytes, 2048)> first_{};
  std::size_t kept_ = 0;
  bool keeps_ = true, tried_ = false;
};

}  // namespace tensorpull
