// The common part of all transport policies over a datagram link. Derive from it and define connect(); define open()
// too to have an owner of many peers.
#pragma once

#include <tensorpull/framing/detail/payload_prefix.hpp>
#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/transports/blocking/datagram_pull.hpp>
#include <tensorpull/transports/concept.hpp>
#include <tensorpull/transports/owner_parts.hpp>
#include <tensorpull/transports/peers/guest_link.hpp>


namespace tensorpull {

template <class Parts, class Tensors>
class datagram_owner;  // transports/peers/owner.hpp: a program that only pulls need not compile it
template <class Parts, class Wire>
class basic_session;  // transports/session/datagram_session.hpp: the same
template <class Parts, datagram_link Link>
  requires(Link::addresses_are_proved)
class datagram_wire;

namespace detail {

template <class Link>
struct guest_of {
  using type = guest_link<Link>;
};
template <class Link>
  requires(Link::addresses_are_proved)
struct guest_of<Link> {
  using type = Link;
};
/// The link of an end that has called another one, as drivers use it.
template <datagram_link Link>
using guest_of_t = typename guest_of<Link>::type;

template <datagram_link Link>
result<guest_of_t<Link>> as_guest(result<Link> link) noexcept {
  if (!link) return failure(link.error());
  return guest_of_t<Link>(std::move(*link));
}

/// A transport over datagrams reaches an end (datagram_transport, 1).
template <class Transport, class Link>
concept connects_datagrams = requires(std::string_view address, std::chrono::milliseconds timeout,
                                      const stop_token& stop) {
  { Transport::connect(address, timeout, stop) } noexcept -> std::same_as<result<Link>>;
};

}  // namespace detail

/// A policy for the transport slot is `struct mine : datagram_transport<mine, my_link>` with
///  1. `static result<my_link> connect(std::string_view address, std::chrono::milliseconds timeout, const stop_token&
///     stop) noexcept`: a link to one peer (errors: bad_address, connection_failed with errno, timed_out, cancelled).
///     It need not wait for the peer;
///  2. for owners of many peers, `static result<my_link> open(std::string_view address) noexcept`: a link to every peer
///     that sends to the address; optionally `static constexpr std::string_view any_address`, which is opened if a
///     program names none, and `link.port()`.
/// The chunking has to fit: fit_datagram, or fixed_bytes of at most max_payload_bytes.
template <class Self, datagram_link Link>
struct datagram_transport {
  using is_transport_policy = void;
  using link = Link;  ///< one end, or all recipients of an owner
  /// datagrams are lost, doubled and overtaken; the engine above puts that right
  static constexpr bool reliable = false;
  static constexpr bool ordered = false;  ///< the same
  static constexpr bool cuts_frames = true;  ///< a description that does not fit one datagram travels in pieces
  static constexpr bool shares_memory = false;
  static constexpr bool encrypted = false;
  static constexpr bool anyone_answers = false;  ///< a link leads to one end; hide it if others can answer, too
  /// no link identifies the sender: `authorise` is asked without an identity
  static constexpr identity_kind identifies = identity_kind::none;
  /// The rest of a datagram behind the cookie and the prefix of a chunk, in whole words.
  static constexpr std::uint64_t max_payload_bytes = (Link::max_datagram_bytes -
                                                      (Link::addresses_are_proved ? 0 : cookie_bytes) -
                                                      detail::payload_prefix::bytes) /
                                                     8 * 8;
  /// A peer's entry in an owner's table, besides its endpoint.
  static constexpr std::size_t connection_bytes = 128 + sizeof(typename Link::address);

  /// Bytes that a pull has besides the transfer of a stream (pipeline::memory).
  template <class Parts>
  static constexpr std::size_t pull_bytes = detail::datagram_pull_bytes<Parts, detail::guest_of_t<Link>>;

  template <class Parts>
  using downloader = datagram_owner<owner_parts_of<Parts>, typename Parts::tensors>;
  template <class Parts>
  using session = basic_session<Parts, datagram_wire<Parts, detail::guest_of_t<Link>>>;

  /// Reaches the address, pulls and ends; begins again with what has landed if the peer cannot be heard any more.
  template <class Parts, consumer Consumer>
  static result<receipt> pull(std::string_view address, const reference& ref, Consumer& to, const pull_options& options,
                              typename Parts::chunking chunking) noexcept {
    static_assert(
        detail::connects_datagrams<Self, Link>,
        "tensorpull: a transport over datagrams reaches a peer: static result<link> connect(std::string_view address, std::chrono::milliseconds timeout, "
        "const stop_token& stop) noexcept");
    if constexpr (detail::connects_datagrams<Self, Link>) {
      const auto connect = [&] {
        return detail::as_guest<Link>(Self::connect(address, options.per_request_timeout, options.stop));
      };
      return pull_datagrams_with<Parts>(connect, &detail::pause, ref, to, options, chunking);
    } else return failure(errc::bad_address);  // refused above
  }
};

}  // namespace tensorpull
