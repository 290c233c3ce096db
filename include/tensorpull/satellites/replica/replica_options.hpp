// How a replica behaves: how many it serves, how long it waits for the owner that coordinates.
#pragma once

#include <tensorpull/std/chrono.hpp>
#include <tensorpull/transports/host_budget.hpp>

#include <cstddef>

namespace tensorpull {

/// The limits of a replica.
struct replica_options {
  /// No more are accepted: others wait in the system's queue, where a balancer sees that it should give them to
  /// another. If some wait there, or no descriptors are left for them, the oldest that have shown nothing
  /// (connection_budgets::accept) for a second are ended to make room. Each has one line to the coordinator, for which
  /// a descriptor is kept from the start.
  std::size_t max_connections = 1024;
  /// When a connection is ended. `accept` is also the time that a line to the coordinator may take to be established;
  /// `frame` is not used.
  connection_budgets budgets{};
  /// How long the coordinator may be unreachable. So long recipients that ask wait, without knowing; then they are told
  /// `owner_lost`, and so ends what the replica publishes. A coordinator that comes back in time goes on.
  std::chrono::milliseconds gone = std::chrono::seconds(5);
  /// While a recipient takes chunks from the replica, the coordinator is made to send 4 KiB so often, which are thrown
  /// away, so that it sees that the recipient is alive. It has to be well below the coordinator's `recipient_idle`, and
  /// 4 KiB in this time have to be more than its `least_bytes_per_second`.
  std::chrono::milliseconds sign_of_life = std::chrono::seconds(5);
};

/// How a replica has fared, since it was opened.
struct replica_counts {
  std::uint64_t accepted = 0;  ///< connections
  std::uint64_t own = 0;  ///< chunks that it answered by itself
  std::uint64_t own_bytes = 0;  ///< bytes of payload among them that were sent
  std::uint64_t passed_on = 0;  ///< requests that went to the coordinator
  std::uint64_t broken = 0;  ///< connections that were ended because one side broke the protocol
  std::uint64_t expired = 0;  ///< connections that were ended because a budget was spent
};

}  // namespace tensorpull
