// Prints a run for people: a header, one aligned line for each round (123 columns), and a summary with the verdict.
#pragma once

#include "round_report.hpp"
#include "text.hpp"
#include "verdict.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace federated {

namespace detail {

inline void print_figures(std::FILE* out, const process_figures& figures) {
  std::fprintf(out, " | %8.2f %7llu %5llu %6llu %10llu", mebibytes(figures.resident_bytes), wide(figures.threads),
               wide(figures.descriptors), wide(figures.live_allocations), wide(figures.live_bytes));
}

inline void print_process_summary(std::FILE* out, const run_report& report, const judged_process& process) {
  const auto of = [&](const round_figures& round) -> const process_figures& { return round.*process.figures; };
  const process_figures& last = of(report.rounds.back());
  std::fprintf(out, "%-8s  resident memory %.2f MiB", process.name, mebibytes(last.resident_bytes));
  if (report.rounds.size() > reference_round)
    std::fprintf(out, " (%.2f after round %zu)", mebibytes(of(report.rounds[reference_round - 1]).resident_bytes),
                 reference_round);
  std::fprintf(out, ", peak %.2f MiB, %llu thread%s, %llu descriptors, %llu live heap blocks of %llu bytes\n",
               mebibytes(last.peak_resident_bytes), wide(last.threads), last.threads == 1 ? "" : "s",
               wide(last.descriptors), wide(last.live_allocations), wide(last.live_bytes));
}

}  // namespace detail

inline void print_table_header(std::FILE* out) {
  std::fprintf(out, "%39s | %-40s | clients\n", "", "server");
  std::fprintf(out, "round  clients  accuracy     MiB      s");
  for (int process = 0; process < 2; ++process)
    std::fprintf(out, " | %8s %7s %5s %6s %10s", "resident", "threads", "descr", "blocks", "heap bytes");
  std::fputc('\n', out);
  std::fflush(out);
}

inline void print_round(std::FILE* out, const round_figures& round) {
  std::fprintf(out, "%5u  %7u  %8.4f %7.1f %6.2f", round.round, round.participants, round.accuracy,
               mebibytes(round.moved_bytes), round.seconds);
  detail::print_figures(out, round.server);
  detail::print_figures(out, round.clients);
  std::fputc('\n', out);
  std::fflush(out);
}

/// Prints a summary of the run, one line for each check that failed or was not made, then PASSED or FAILED.
inline void print_summary(std::FILE* out, const run_report& report, const verdict& judged) {
  if (!report.rounds.empty()) {
    std::uint64_t moved = 0;
    std::uint64_t updates = 0;
    double seconds = 0;
    std::uint32_t fewest = report.rounds.front().participants;
    std::uint32_t most = fewest;
    for (const round_figures& round : report.rounds) {
      moved += round.moved_bytes;
      updates += round.updates;
      seconds += round.seconds;
      fewest = std::min(fewest, round.participants);
      most = std::max(most, round.participants);
    }
    std::fprintf(out, "\n%zu round%s of %u to %u participants in %.1f s: %llu updates, %.1f MiB moved, accuracy %.4f\n",
                 report.rounds.size(), report.rounds.size() == 1 ? "" : "s", fewest, most, seconds, wide(updates),
                 mebibytes(moved), report.rounds.back().accuracy);
    for (const detail::judged_process& process : detail::judged_processes)
      detail::print_process_summary(out, report, process);
  }
  for (const std::string& note : judged.notes) std::fprintf(out, "note: %s\n", note.c_str());
  for (const std::string& violation : judged.violations) std::fprintf(out, "violated: %s\n", violation.c_str());
  std::fprintf(out, "%s\n", judged.passed() ? "PASSED" : "FAILED");
  std::fflush(out);
}

}  // namespace federated
