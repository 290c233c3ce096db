// The result of one simulated run, or the sum of many.
#pragma once

#include <tensorpull/core/error.hpp>
#include <tensorpull/protocol/owner/transaction.hpp>

#include <array>
#include <cstdint>
#include <cstdio>

namespace tensorpull::testing {

/// The counts of a run, and its first failure. The counters of things that must not happen are 0 in a run that passed.
struct simulation_report {
  std::uint64_t seed = 0,                    ///< what the run was drawn from
      steps = 0,                             ///< of the trace
      trace_hash = 0,                        ///< of the trace: equal for equal runs
      virtual_us = 0;                        ///< how long it lasted, in microseconds of virtual time
  std::uint64_t completed = 0,               ///< transfers that ended `completed`
      completed_unverified = 0,              ///< transfers that ended `completed_unverified`
      unconfirmed = 0;  ///< of both: those whose owner is not known to have recorded the confirmation
  std::array<std::uint64_t, 64> failed{};  ///< transfers by error code
  std::uint64_t went_on = 0;  ///< times that a transfer continued after a lost connection, a time-out or `busy`
  std::uint64_t resumed = 0;  ///< times that a new process continued from a cursor
  std::array<std::uint64_t, 8> settled{};  ///< transactions by verdict
  std::uint64_t frame_faults = 0;  ///< frames that were doubled, delayed, dropped, shortened or damaged

  // must not happen, whatever the policies
  /// transfers that ended `completed` without the bytes of the version in the receipt
  std::uint64_t false_completions = 0;
  std::uint64_t guard_violations = 0;  ///< bytes written around a destination
  std::uint64_t contract_violations = 0;  ///< breaches of the consumer's contract by the library
  std::uint64_t false_counts = 0;  ///< times that the owner counted more completions than there were
  /// transactions whose outcome is wrong, or was delivered twice or not at all, or that were served after it
  std::uint64_t false_settlements = 0;
  std::uint64_t leaks = 0;  ///< owners that did not get a buffer or a pin back
  /// transfers that failed by more than lost time although one content was published all the time
  std::uint64_t false_failures = 0;
  std::uint64_t stuck = 0;  ///< runs in which a recipient had not completed long after the last fault
  // must not happen if the integrity policy checks the whole
  std::uint64_t unverified_wrong = 0;  ///< `completed_unverified` with wrong bytes

  const char* first_failure = nullptr;  ///< in words; nullptr: none

  /// Whether nothing happened that must not. unverified_wrong is left to the caller, which knows the integrity policy.
  bool passed() const noexcept {
    return false_completions + guard_violations + contract_violations + false_counts + false_settlements + leaks +
               false_failures + stuck ==
           0;
  }
  /// How many transfers ended with an error.
  std::uint64_t failed_transfers() const noexcept {
    std::uint64_t sum = 0;
    for (const std::uint64_t n : failed) sum += n;
    return sum;
  }

  /// Adds another run. Seed and hash stay those of the first run that failed.
  void add(const simulation_report& r) noexcept {
    if (passed() && !r.passed()) {
      seed = r.seed;
      trace_hash = r.trace_hash;
    }
    for (const auto member :
         {&simulation_report::steps, &simulation_report::virtual_us, &simulation_report::completed,
          &simulation_report::completed_unverified, &simulation_report::unconfirmed, &simulation_report::went_on,
          &simulation_report::resumed, &simulation_report::frame_faults, &simulation_report::false_completions,
          &simulation_report::guard_violations, &simulation_report::contract_violations,
          &simulation_report::false_counts, &simulation_report::false_settlements, &simulation_report::leaks,
          &simulation_report::false_failures, &simulation_report::stuck, &simulation_report::unverified_wrong})
      this->*member += r.*member;
    for (std::size_t i = 0; i < failed.size(); ++i) failed[i] += r.failed[i];
    for (std::size_t i = 0; i < settled.size(); ++i) settled[i] += r.settled[i];
    if (first_failure == nullptr) first_failure = r.first_failure;
  }

  /// Prints the counters that are not 0.
  void print(std::FILE* out) const {
    const auto u = [](std::uint64_t v) { return static_cast<unsigned long long>(v); };
    std::fprintf(
        out,
        "%llu completed, %llu completed_unverified, %llu of them unconfirmed, %llu failed, %llu went on, %llu resumed, %llu frames meddled with, %llu steps, %.1f s of virtual time\n",
        u(completed), u(completed_unverified), u(unconfirmed), u(failed_transfers()), u(went_on), u(resumed),
        u(frame_faults), u(steps), static_cast<double>(virtual_us) * 1e-6);
    for (std::size_t i = 0; i < failed.size(); ++i)
      if (failed[i] > 0) std::fprintf(out, "  %8llu  %s\n", u(failed[i]), to_string(static_cast<errc>(i)).data());
    for (std::size_t i = 0; i < settled.size(); ++i)
      if (settled[i] > 0)
        std::fprintf(out, "  %8llu  transactions %s\n", u(settled[i]), to_string(static_cast<verdict>(i)).data());
    if (!passed() || unverified_wrong > 0)
      std::fprintf(
          out,
          "%llu false completions, %llu unverified and wrong, %llu writes outside, %llu broken contracts, %llu false counts, %llu false settlements, %llu leaks, %llu false failures, %llu stuck (%s)\n",
          u(false_completions), u(unverified_wrong), u(guard_violations), u(contract_violations), u(false_counts),
          u(false_settlements), u(leaks), u(false_failures), u(stuck), first_failure != nullptr ? first_failure : "");
  }
};

}  // namespace tensorpull::testing
