// NATS: owners and recipients that reach each other through a server. Includes pulls, sessions and owners. Needs
// libnats.
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

/// A server, and the patience of a pull with an owner that is gone.
struct nats_address {
  nats_server server{};  ///< where, and as whom
  nats_patience patience{};  ///< with the coordinator
};

/// Policy for the transport slot. `MostBytes`: the longest message; chunks are cut to the server's own limit when a
/// pull connects.
///
/// The server does not tell a receiver which user or account sent a message, so `identifies` is none. Anyone who may
/// subscribe to a reference's subjects can answer first, so a pull needs the version (version_required;
/// pull_options::believe).
template <std::size_t MostBytes = 1024 * 1024>
struct basic_nats : datagram_transport<basic_nats<MostBytes>, basic_nats_link<MostBytes>> {
  static constexpr std::string_view scheme = "nats";  ///< of its addresses, as in system/link_url.hpp
  static constexpr bool takes_host_and_port = true;  ///< also without the name of its link
  using link = basic_nats_link<MostBytes>;  ///< one end, or all recipients of an owner
  static constexpr bool anyone_answers = true;  ///< any user that may subscribe
  template <class Parts>
  using downloader = nats_owner<owner_parts_of<Parts>, typename Parts::tensors>;
  template <class Parts>
  using session = basic_session<Parts, datagram_wire<Parts, nats_peer<link>>>;
  /// The role that an owner's peers talk to.
  template <class Owner>
  using role = replica_role<Owner>;

  /// For sessions, as basic_nats_meeting::connect: `nats://server:4222#name`.
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

  /// Connects to the server, pulls from the owners of the reference, and closes. Errors besides those of any pull:
  /// not_permitted: the server does not let this user in; owner_lost: the coordinator is gone (the cursor has what has
  /// landed).
  template <class Parts, consumer Consumer>
  static result<receipt> pull(const nats_address& where, const reference& ref, Consumer& to,
                              const pull_options& options, typename Parts::chunking chunking) noexcept {
    const auto connect = [&]() noexcept -> result<nats_guest<link>> {
      auto to_server = link::connect(where.server, options.stop, 1);
      if (!to_server) return failure(to_server.error());
      return nats_guest<link>(std::move(*to_server), ref.id, where.patience);
    };
    return pull_datagrams_with<Parts>(connect, &detail::pause, ref, to, options, chunking);
  }
  /// The same with the server's URL, as nats_server::of reads it.
  template <class Parts, consumer Consumer>
  static result<receipt> pull(std::string_view url, const reference& ref, Consumer& to, const pull_options& options,
                              typename Parts::chunking chunking) noexcept {
    const auto server = nats_server::of(url);
    if (!server) return failure(server.error());
    return pull<Parts>(nats_address{*server, {}}, ref, to, options, chunking);
  }
};

/// Over servers with the usual limit of 1 MiB a message.
using nats = basic_nats<>;

static_assert(transport<nats>);

}  // namespace tensorpull
