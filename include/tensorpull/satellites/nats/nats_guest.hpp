// The pulling end of a link: it reaches all owners of one reference, and notices when the coordinator is gone.
#pragma once

#include <tensorpull/satellites/nats/nats_link.hpp>
#include <tensorpull/satellites/nats/nats_watch.hpp>

#include <utility>

namespace tensorpull {

/// A link to the owners of one reference. The default address is the coordinator's; `any_owner` is any of the owners of
/// the content.
template <class Link>
class nats_guest {
 public:
  /// The coordinator, or any owner.
  struct address {
    bool any = false;  ///< one of all, which the server chooses

    friend constexpr bool operator==(const address&, const address&) noexcept = default;
    /// Tells the two apart.
    constexpr std::uint64_t hash() const noexcept { return any; }
  };
  static constexpr address any_owner{true};  ///< any owner of the content
  static constexpr std::size_t max_datagram_bytes = 4096;  ///< of requests; answers may be as long as the link's
  static constexpr bool checked = Link::checked;  ///< as the link
  /// answers arrive at an inbox that only owners of the reference and the server's operators know
  static constexpr bool addresses_are_proved = true;

  /// Takes over a link that may serve one subject.
  nats_guest(Link link, const ref_id& of, const nats_patience& patience) noexcept
      : link_(std::move(link)), coordinator_(nats_subject::coordinator(of)), any_(nats_subject::any(of)),
        patience_(patience), arriving_(link_.datagram_bytes()) {
    (void)watch_.begin(link_, coordinator_, std::chrono::steady_clock::now());
  }

  /// The longest datagram that it sends.
  std::size_t datagram_bytes() const noexcept { return std::min(link_.datagram_bytes(), max_datagram_bytes); }
  /// The longest that arrives, by the server's limit when the link was made.
  std::size_t arriving_bytes() const noexcept { return arriving_; }
  /// Why it is closed. owner_lost: the coordinator is gone; not_permitted: the server does not let this user ask;
  /// connection_failed: there has been no coordinator since the link was made; connection_lost: the server now allows
  /// only shorter messages.
  error why() const noexcept {
    std::string_view words;
    if (why_ == errc::connection_failed) words = "the server knows no owner of the reference";
    if (why_ == errc::not_permitted) words = "this user may not publish to tensorpull.>";
    return {why_, 0, 0, words};
  }

  /// As in datagram_link.
  io_result receive(std::span<std::byte> memory, address& from) noexcept {
    return detail::receive_copy(*this, memory, from);
  }
  /// The same without a copy.
  io_result receive_in_place(std::span<const std::byte>& datagram, address&) noexcept {
    nats_subject from;
    const io_result io = link_.receive_in_place(datagram, from);
    if (io.status == io_status::would_block && over()) return {io_status::closed, 0, 0};
    return io;
  }
  /// As in datagram_link.
  io_result send(gather_list spans, const address& to) noexcept {
    return link_.send(spans, to.any ? any_ : coordinator_);
  }
  /// As in datagram_link.
  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    return link_.wait(read, write, timeout);
  }

 private:
  /// Whether nobody is at the other end any more.
  bool over() noexcept {
    if (link_.may_not_publish(coordinator_) || link_.may_not_publish(any_)) {
      why_ = errc::not_permitted;
      return true;
    }
    const auto now = std::chrono::steady_clock::now();
    watch_.step(link_, now);
    if (watch_.lost(patience_, now)) {
      why_ = watch_.known() ? errc::owner_lost : errc::timed_out;
      return true;
    }
    if (watch_.nobody() && !watch_.known()) {
      why_ = errc::connection_failed;
      return true;
    }
    return link_.datagram_bytes() < arriving_;
  }

  Link link_;
  nats_subject coordinator_, any_;
  nats_patience patience_;
  std::size_t arriving_;
  nats_watch watch_;
  errc why_ = errc::connection_lost;
};

static_assert(datagram_link<nats_guest<nats_link>>);

}  // namespace tensorpull
