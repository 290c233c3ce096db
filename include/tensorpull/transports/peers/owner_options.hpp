// The options of an owner over datagrams, and its counts.
#pragma once

#include <tensorpull/protocol/owner/access.hpp>
#include <tensorpull/protocol/owner/owner_memory.hpp>
#include <tensorpull/transports/peers/peer_table.hpp>
#include <tensorpull/transports/send_limiter.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tensorpull {

/// Where an owner over datagrams listens, and how many it serves.
struct datagram_owner_options {
  std::string_view listen{};     ///< the address. None: the transport's any_address (udp: a free port of 127.0.0.1)
  std::size_t peers = 1024;      ///< recipients that are remembered at a time. Others are told `busy`, and return
  peer_budgets budgets{};        ///< when one is forgotten that is silent
  /// For requests and answers that do not fit one datagram; shared by all peers. One request for names may take two,
  /// its own and that of its answer. While none is free, a peer that has kept one for the budgets' `idle_if_full`
  /// without taking or sending a piece, or for `idle` in all, loses it, and gets none for twice `idle_if_full`.
  std::size_t long_buffers = 8;
  send_limits limits{};  ///< how fast it may send, to all peers and to each
  /// decides what each peer may have, as publisher::authorise; none: everybody may have everything
  authorise_callback authorise{};
  /// for how much it has room to publish; more than the limits say: with heap_owner_room
  /// (protocol/owner/owner_room.hpp)
  owner_room_size room{};
};

/// How an owner over datagrams has fared, since it was opened.
struct datagram_owner_counts {
  std::uint64_t strangers = 0;  ///< datagrams without the right cookie; each was answered with a cookie, or not at all
  std::uint64_t refused_busy = 0;  ///< datagrams of peers for which the table had no room
  std::uint64_t malformed = 0;  ///< datagrams of peers with something in them that no end of the protocol sends
  std::uint64_t aged = 0;  ///< peers that were forgotten because they were silent
  std::uint64_t pushed_out = 0;  ///< those among them that made room for others
};

}  // namespace tensorpull
