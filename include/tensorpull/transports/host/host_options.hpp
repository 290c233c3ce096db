// The limits of a host, without the host: for a program that opens one elsewhere.
#pragma once

#include <tensorpull/protocol/owner/access.hpp>
#include <tensorpull/protocol/owner/owner_memory.hpp>
#include <tensorpull/transports/host_budget.hpp>
#include <tensorpull/transports/send_limiter.hpp>

#include <cstddef>

namespace tensorpull {

/// The limits of a host.
struct host_options {
  /// No more are accepted: others wait in the system's queue. If some wait there, or no descriptor is left for them,
  /// the oldest that have shown nothing (connection_budgets::accept) for a second are ended to make room: 320 each
  /// second, and of an address that has more than an eighth of max_connections in such ones, all above that. connect()
  /// and adopt() are not limited.
  std::size_t max_connections = 4096;
  std::size_t message_buffers = 8;  ///< for frames above 512 bytes; shared by all connections
  /// For how many connections the event loop's records are allocated at start. Up to this number, later connections
  /// leave no more records behind.
  std::size_t reserved_connections = 0;
  connection_budgets budgets{};  ///< when a connection is ended
  send_limits limits{};  ///< how fast it may send, to all connections and to each
  /// decides what each peer may have, as publisher::authorise; none: everybody may have everything
  authorise_callback authorise{};
  /// for how much it has room to publish; more than the limits say: with heap_owner_room
  /// (protocol/owner/owner_room.hpp)
  owner_room_size room{};
};

}  // namespace tensorpull
