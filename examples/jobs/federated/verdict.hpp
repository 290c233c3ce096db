// Judges a finished run: was it complete, flat in memory, threads, descriptors and allocations, and did it learn?
#pragma once

#include "round_report.hpp"
#include "text.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace federated {

/// Caches, pools and the allocator's arenas are filled after this round. From here on nothing may grow.
inline constexpr std::size_t reference_round = 6;
inline constexpr std::uint64_t resident_slack_bytes = 256 * 1024;
inline constexpr double resident_slack_share = 0.01;
inline constexpr double least_accuracy = 0.85;
inline constexpr std::size_t rounds_to_judge_accuracy = 45;

struct verdict {
  /// One sentence for each check that failed; none: the run passed.
  std::vector<std::string> violations;
  /// One sentence for each check that could not be made.
  std::vector<std::string> notes;

  bool passed() const { return violations.empty(); }
};

namespace detail {

/// What must stay exactly the same after every round from the reference on.
struct flat_figure {
  const char* name;
  std::uint64_t process_figures::* value;
};

inline constexpr flat_figure flat_figures[] = {{"live heap allocations", &process_figures::live_allocations},
                                               {"live heap bytes", &process_figures::live_bytes},
                                               {"threads", &process_figures::threads},
                                               {"open descriptors", &process_figures::descriptors}};

struct judged_process {
  const char* name;
  process_figures round_figures::* figures;
};

inline constexpr judged_process judged_processes[] = {{"server", &round_figures::server},
                                                      {"clients", &round_figures::clients}};

inline void judge_flat(const std::vector<round_figures>& rounds, const judged_process& process,
                       const flat_figure& figure, verdict& judged) {
  const auto value = [&](const round_figures& round) { return round.*process.figures.*figure.value; };
  const std::uint64_t expected = value(rounds[reference_round - 1]);
  const auto later = rounds.begin() + reference_round;
  const auto differs = [&](const round_figures& round) { return value(round) != expected; };
  const auto first = std::find_if(later, rounds.end(), differs);
  if (first == rounds.end()) return;
  judged.violations.push_back(
      formatted("%s: %s were %llu after round %zu but %llu after round %u "
                "(%zu of the %zu rounds since differ; %llu after the last).",
                process.name, figure.name, wide(expected), reference_round, wide(value(*first)), first->round,
                static_cast<std::size_t>(std::count_if(later, rounds.end(), differs)), rounds.size() - reference_round,
                wide(value(rounds.back()))));
}

inline void judge_resident(const std::vector<round_figures>& rounds, const judged_process& process, verdict& judged) {
  const std::uint64_t before = (rounds[reference_round - 1].*process.figures).resident_bytes;
  const std::uint64_t after = (rounds.back().*process.figures).resident_bytes;
  const std::uint64_t slack = std::max(resident_slack_bytes,
                                       static_cast<std::uint64_t>(resident_slack_share * static_cast<double>(before)));
  if (after <= before || after - before <= slack) return;
  judged.violations.push_back(
      formatted("%s: resident memory grew by %.2f MiB, from %.2f MiB after round %zu to %.2f MiB after round %u; "
                "%.2f MiB are allowed.",
                process.name, mebibytes(after - before), mebibytes(before), reference_round, mebibytes(after),
                rounds.back().round, mebibytes(slack)));
}

}  // namespace detail

inline verdict judge(const run_report& report) {
  const std::vector<round_figures>& rounds = report.rounds;
  verdict judged;
  if (rounds.size() != report.settings.rounds)
    judged.violations.push_back(formatted("only %zu of %u rounds were run.", rounds.size(), report.settings.rounds));
  const auto incomplete = [](const round_figures& round) { return round.updates != round.participants; };
  if (const auto first = std::find_if(rounds.begin(), rounds.end(), incomplete); first != rounds.end())
    judged.violations.push_back(formatted("%zu of %zu rounds lost updates; in round %u, %u of %u arrived.",
                                          static_cast<std::size_t>(std::count_if(first, rounds.end(), incomplete)),
                                          rounds.size(), first->round, first->updates, first->participants));

  if (rounds.size() <= reference_round) {
    judged.notes.push_back(formatted("flatness was not judged: that takes at least %zu rounds, these were %zu.",
                                     reference_round + 1, rounds.size()));
  } else {
    for (const detail::judged_process& process : detail::judged_processes) {
      if ((rounds.back().*process.figures).live_allocations == 0)
        judged.notes.push_back(formatted("%s: heap allocations were not counted in this build.", process.name));
      for (const detail::flat_figure& figure : detail::flat_figures)
        detail::judge_flat(rounds, process, figure, judged);
      detail::judge_resident(rounds, process, judged);
    }
  }

  if (rounds.size() < rounds_to_judge_accuracy)
    judged.notes.push_back(formatted("accuracy was not judged: that takes at least %zu rounds, these were %zu.",
                                     rounds_to_judge_accuracy, rounds.size()));
  else if (!(rounds.back().accuracy >= least_accuracy))
    judged.violations.push_back(formatted("held-out accuracy ended at %.4f, under the %.2f that are expected.",
                                          rounds.back().accuracy, least_accuracy));
  return judged;
}

}  // namespace federated
