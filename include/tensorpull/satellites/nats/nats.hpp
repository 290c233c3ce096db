// NATS: owners and recipients that reach each other through a server. Needs Debian's libnats. Includes all of it:
// pulls, sessions and owners.
#pragma once

#include <tensorpull/satellites/nats/nats_guest.hpp>
#include <tensorpull/satellites/nats/nats_link.hpp>
#include <tensorpull/satellites/nats/nats_owner.hpp>
#include <tensorpull/satellites/nats/nats_peer.hpp>
#include <tensorpull/satellites/nats/nats_server.hpp>
#include <tensorpull/transports/over/datagram_transport.hpp>
#include <tensorpull/transports/session/datagram_session.hpp>

#include <string_view>

namespace tensorpull {

/// A server, and how long a pull waits for an owner that is gone.
struct nats_address {
  nats_server server{};  ///< where, and as whom
  nats_patience patience{};  ///< with the owner that coordinates the transaction
};

/// Policy for the transport slot. `MostBytes`: of the longest message, at least what a server allows that chunks shall
/// fill. What is longer than the server allows is shortened: chunks are cut to its limit, as it says when a pull
/// connects.
///
/// The server does not tell a receiver which user or account sent a message, so `identifies` is none. Anyone who may
/// subscribe to a reference's subjects can answer first, so a pull needs the version that it is to get
/// (version_required otherwise; pull_options::believe).
template <std::size_t MostBytes = 1024 * 1024>
struct basic_nats : datagram_transport<basic_nats<MostBytes>, basic_nats_link<MostBytes>> {
  static constexpr std::string_view scheme = "nats";  ///< of its addresses, as in system/link_url.hpp
  using link = basic_nats_link<MostBytes>;  ///< one end, or all recipients of an owner
  static constexpr bool anyone_answers = true;  ///< any user that may subscribe
  template <class Parts>
  using downloader = nats_owner<Parts>;
  template <class Parts>
  using session = basic_session<Parts, datagram_wire<Parts, nats_peer<link>>>;
  /// What an owner's peers talk to.
  template <class Owner>
  using role = replica_role<Owner>;

  /// For sessions, as basic_nats_meeting::connect: to a `nats://server:4222#name`.
  static result<nats_peer<link>> connect(std::string_view url, std::chrono::milliseconds timeout,
                                         const stop_token& stop) noexcept {
    const auto where = basic_nats_meeting<link>::of(url);
    return where ? where->connect(timeout, stop) : result<nats_peer<link>>(failure(where.error()));
  }
  /// The other end, as basic_nats_meeting::open.
  static result<nats_peer<link>> open(std::string_view url) noexcept {
    const auto where = basic_nats_meeting<link>::of(url);
    return where ? where->open() : result<nats_peer<link>>(failure(where.error()));
  }

  /// Connects to the server, pulls from the owners of the reference, and closes. More errors than of any pull:
  /// not_permitted: the server does not let this user in; owner_lost: the owner that coordinates the transaction is
  /// gone (what has landed is in the cursor).
  template <class Parts, consumer Consumer>
  static result<receipt> pull(const nats_address& where, const reference& ref, Consumer& to,
                              const pull_options& options, typename Parts::chunking chunking) noexcept {
    const auto connect = [&]() noexcept -> result<nats_guest<link>> {
      auto to_server = link::connect(where.server, options.stop, 1);
      if (!to_server) return failure(to_server.error());
      return nats_guest<link>(std::move(*to_server), ref.id, where.patience);
    };
    return pull_datagrams_with<Parts>(
        connect, [](std::chrono::milliseconds time) { detail::pause(time); }, ref, to, options, chunking);
  }
  /// The same with the server's URL alone.
  template <class Parts, consumer Consumer>
  static result<receipt> pull(std::string_view url, const reference& ref, Consumer& to, const pull_options& options,
                              typename Parts::chunking chunking) noexcept {
    return pull<Parts>(nats_address{{.url = url}, {}}, ref, to, options, chunking);
  }
};

/// Over servers that allow 1 MiB for a message, as they do unless they are told otherwise.
using nats = basic_nats<>;

static_assert(transport<nats>);

}  // namespace tensorpull
