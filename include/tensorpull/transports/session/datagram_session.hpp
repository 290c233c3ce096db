// Sessions over any datagram_link.
#pragma once

#include <tensorpull/protocol/datagrams/datagram_endpoint.hpp>
#include <tensorpull/transports/blocking/datagram_pull.hpp>
#include <tensorpull/transports/over/datagram_transport.hpp>
#include <tensorpull/transports/peers/called_link.hpp>
#include <tensorpull/transports/session/session.hpp>

#include <utility>

namespace tensorpull {

namespace detail {

/// The link of an end that is called, as drivers use it.
template <datagram_link Link>
auto as_called(result<Link> link) noexcept {
  if constexpr (Link::addresses_are_proved) return link;
  else {
    using called = called_link<Link>;
    return link ? result<called>(called(std::move(*link))) : result<called>(failure(link.error()));
  }
}

}  // namespace detail

/// The wire of a session over datagrams (session_wire): over a link to one peer whose address is proved.
template <class Parts, datagram_link Link>
  requires(Link::addresses_are_proved)
class datagram_wire {
  using limits = typename Parts::limits;
  using transport = typename Parts::transport;

 public:
  using link_type = Link;  ///< a link to one peer
  template <class Owner, class Handler>
  using end = datagram_endpoint<typename Parts::framing, limits, Owner, Handler>;
  template <class Consumer>
  using pull = detail::running_datagram_pull<Parts, Consumer>;
  template <class Other>
  using of = datagram_wire<Parts, Other>;
  static constexpr std::size_t scratch_bytes = std::max(detail::slice_bytes<limits>,
                                                        detail::datagram_scratch_bytes<Link, limits>);
  static constexpr std::size_t buffer_bytes = detail::held_chunk_bytes;
  static constexpr bool messages_block = false;  ///< they are sent again
  /// In a call that waits, the path carries a datagram at least this often: firewalls forget a silent one after 30 s
  /// or more, and a machine where nobody listens has answered three times within a minute.
  static constexpr std::chrono::seconds longest_silence{15};

  explicit datagram_wire(Link link) noexcept : link_(std::move(link)) {}
  /// As basic_session::connect.
  static result<Link> connect(std::string_view address, std::chrono::milliseconds timeout,
                              const stop_token& stop) noexcept {
    return detail::as_guest(transport::connect(address, timeout, stop));
  }
  /// A link to the first that calls.
  static auto open(std::string_view address) noexcept { return detail::as_called(transport::open(address)); }
  Link& link() noexcept { return link_; }
  const Link& link() const noexcept { return link_; }

  template <class Owner, class Handler>
  end<Owner, Handler> make_end(Owner& owner, buffer_pool<>& pool, Handler& handler) noexcept {
    return end<Owner, Handler>(owner, pool, handler, link_.datagram_bytes(), system_entropy{}());
  }
  template <class End, class Transfer>
  result<datagrams_moved> step(End& e, Transfer& t, std::span<std::byte> scratch, session_moves) noexcept {
    auto did = step_datagrams(e, t, link_, scratch, come_, detail::endpoint_time<typename Parts::platform, End>());
    spoke_ = spoke_ || (did && did->sent > 0);
    return did;
  }
  static bool goes_on(const datagrams_moved& did) noexcept { return did.received > 0 || did.sent > 0; }
  template <class End>
  void wait(End& e, const datagrams_moved& did, std::chrono::milliseconds most) noexcept {
    if constexpr (requires { link_.keep_path(); })
      if (const auto now = std::chrono::steady_clock::now(); spoke_ || now - kept_ >= longest_silence) {
        if (!std::exchange(spoke_, false)) link_.keep_path();
        kept_ = now;
      }
    detail::wait_for_datagrams<typename Parts::platform>(e, no_transfer{}, link_, did.blocked, most);
  }
  void leave() noexcept { (void)link_.wait(false, false, {}); }
  template <class End>
  result<void> resume(End&) noexcept {
    return {};
  }
  template <class Pull>
  void prepare(Pull& p) noexcept {
    p.transfer().hold(held_);
    p.transfer().fits(detail::longest_arriving(link_));
  }
  template <class Pull, class End, class Besides>
  result<void> drive(Pull& p, End& e, std::span<std::byte> scratch, Besides& besides) noexcept {
    detail::datagram_pull_wire<typename Parts::platform, End, Link> line(e, link_, scratch, come_);
    return p.drive(line, besides);
  }

 private:
  Link link_;
  alignas(8) std::array<std::byte, detail::held_chunk_bytes> held_;
  detail::datagram_memory<Link> come_;
  std::chrono::steady_clock::time_point kept_ = std::chrono::steady_clock::now();
  bool spoke_ = false;
};

/// A session over datagrams.
template <class Parts, datagram_link Link>
using datagram_session = basic_session<Parts, datagram_wire<Parts, Link>>;

}  // namespace tensorpull
