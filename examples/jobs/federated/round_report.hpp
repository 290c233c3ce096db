// The figures of a run, round by round, for both processes. They are printed, plotted, written as JSON and judged.
#pragma once

#include "heap_count.hpp"
#include "process_stats.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace federated {

/// The figures of one process after a round, when its connections are closed. Plain numbers, so that the clients can
/// send them.
struct process_figures {
  std::uint64_t resident_bytes = 0;
  std::uint64_t peak_resident_bytes = 0;
  std::uint64_t threads = 0;
  std::uint64_t descriptors = 0;
  /// Heap blocks that were allocated and not freed, and their bytes.
  std::uint64_t live_allocations = 0;
  std::uint64_t live_bytes = 0;
};

/// This process's figures now. Throws std::runtime_error if /proc cannot be read.
inline process_figures figures_of_self() {
  const heap_figures heap = live_heap();  // first: reading /proc allocates for a moment
  const std::optional<process_stats> stats = stats_of_self();
  if (!stats) throw std::runtime_error("cannot read this process's figures from /proc");
  return {stats->resident_bytes, stats->peak_resident_bytes, stats->threads,
          stats->descriptors,    heap.live_allocations,      heap.live_bytes};
}

struct round_figures {
  std::uint32_t round = 0;  // from 1
  std::uint32_t participants = 0;
  /// Updates in the average; fewer than the participants if some were lost.
  std::uint32_t updates = 0;
  /// Of the global model after the round, on the held-out digits; from 0 to 1.
  double accuracy = 0;
  /// Model bytes pulled over the network, both ways together.
  std::uint64_t moved_bytes = 0;
  double seconds = 0;
  process_figures server;
  process_figures clients;
};

struct run_settings {
  std::uint32_t rounds = 0;
  std::uint32_t clients = 0;
  /// The same number of participants in each round; 0: as the participants file says.
  std::uint32_t fixed_participants = 0;
  std::uint64_t seed = 0;
  double learning_rate = 0;
  std::uint32_t local_epochs = 0;
  std::uint32_t batch_images = 0;
  std::uint64_t model_bytes = 0;
};

/// Makes room for all rounds at the start, because a history that grew would itself show as growing memory.
struct run_report {
  explicit run_report(const run_settings& chosen) : settings{chosen} { rounds.reserve(chosen.rounds); }

  run_settings settings;
  std::vector<round_figures> rounds;
};

}  // namespace federated
