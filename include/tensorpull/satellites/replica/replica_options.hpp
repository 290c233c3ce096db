// The options of a replica: how many recipients it serves, and how long it waits for the coordinator.
#pragma once

#include <tensorpull/std/chrono.hpp>
#include <tensorpull/transports/host_budget.hpp>

#include <cstddef>

namespace tensorpull {

/// The limits of a replica.
struct replica_options {
  /// The most connections. Others wait in the system's queue, where a balancer notices them. If some wait there, or no
  /// descriptor is left for them, the oldest connections that have shown nothing (connection_budgets::accept) for a
  /// second are ended. Each recipient has a connection to the coordinator, for which a descriptor is kept from the
  /// start.
  std::size_t max_connections = 1024;
  /// When a connection is ended. `accept` also bounds how long connecting to the coordinator may take; `frame` is not
  /// used.
  connection_budgets budgets{};
  /// How long the coordinator may be unreachable. Meanwhile recipients wait; then they are told `owner_lost`, and the
  /// replica's publications end so. A coordinator that returns in time continues.
  std::chrono::milliseconds gone = std::chrono::seconds(5);
  /// While a recipient takes chunks from the replica, the coordinator sends 4 KiB this often, which are dropped, so
  /// that it sees that the recipient is alive. It has to be well below the coordinator's `recipient_idle`, and 4 KiB in
  /// this time above its `least_bytes_per_second`.
  std::chrono::milliseconds sign_of_life = std::chrono::seconds(5);
};

/// The counts of a replica since it was opened.
struct replica_counts {
  std::uint64_t accepted = 0;  ///< connections
  std::uint64_t own = 0;  ///< chunks from its own copy
  std::uint64_t own_bytes = 0;  ///< bytes of their payload that were sent
  std::uint64_t passed_on = 0;  ///< requests that went to the coordinator
  std::uint64_t broken = 0;  ///< connections ended because a side broke the protocol
  std::uint64_t expired = 0;  ///< connections ended because a budget was spent
};

}  // namespace tensorpull
