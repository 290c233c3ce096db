// What one simulated run, or many, ended with.
#pragma once

#include <tensorpull/core/error.hpp>
#include <tensorpull/protocol/owner/transaction.hpp>

#include <array>
#include <cstdint>
#include <cstdio>

namespace tensorpull::testing {

/// Counts, and the first thing that must not happen.
struct simulation_report {
  std::uint64_t seed = 0, steps = 0, trace_hash = 0, virtual_us = 0;
  std::uint64_t completed = 0, completed_unverified = 0;
  std::array<std::uint64_t, 64> failed{};    ///< transfers by error code
  std::uint64_t went_on = 0;                 ///< times that a transfer went on after a lost connection, a time-out or `busy`
  std::uint64_t resumed = 0;                 ///< times that a new process went on from a cursor
  std::array<std::uint64_t, 7> settled{};    ///< transactions by verdict
  std::uint64_t frame_faults = 0;            ///< frames that were doubled, delayed, dropped, shortened or damaged

  // must not happen, whatever the policies
  std::uint64_t false_completions = 0;       ///< `completed`, and the bytes are not those of the version in the receipt
  std::uint64_t guard_violations = 0;        ///< bytes written around a destination
  std::uint64_t contract_violations = 0;     ///< the library broke the consumer's contract
  std::uint64_t false_counts = 0;            ///< the owner counts more completions than there were
  std::uint64_t false_settlements = 0;       ///< a transaction's outcome is not what happened, was told twice or not at all, or was served on
  std::uint64_t leaks = 0;                   ///< buffers or pins that the owner did not get back
  std::uint64_t stuck = 0;                   ///< somebody had not completed long after the last fault
  // must not happen where the integrity policy checks the whole
  std::uint64_t unverified_wrong = 0;        ///< `completed_unverified` with wrong bytes

  const char* first_failure = nullptr;

  bool passed() const noexcept { return false_completions + guard_violations + contract_violations + false_counts + false_settlements + leaks + stuck == 0; }
  std::uint64_t failed_transfers() const noexcept {
    std::uint64_t sum = 0;
    for (const std::uint64_t n : failed) sum += n;
    return sum;
  }

  /// Sums up another run; seed and hash stay the first failure's.
  void add(const simulation_report& r) noexcept {
    if (passed() && !r.passed()) seed = r.seed, trace_hash = r.trace_hash;
    for (const auto member : {&simulation_report::steps, &simulation_report::virtual_us, &simulation_report::completed, &simulation_report::completed_unverified,
                              &simulation_report::went_on, &simulation_report::resumed, &simulation_report::frame_faults, &simulation_report::false_completions, &simulation_report::guard_violations,
                              &simulation_report::contract_violations, &simulation_report::false_counts, &simulation_report::false_settlements, &simulation_report::leaks, &simulation_report::stuck, &simulation_report::unverified_wrong})
      this->*member += r.*member;
    for (std::size_t i = 0; i < failed.size(); ++i) failed[i] += r.failed[i];
    for (std::size_t i = 0; i < settled.size(); ++i) settled[i] += r.settled[i];
    if (first_failure == nullptr) first_failure = r.first_failure;
  }

  void print(std::FILE* out) const {
    const auto u = [](std::uint64_t v) { return static_cast<unsigned long long>(v); };
    std::fprintf(out, "%llu completed, %llu completed_unverified, %llu failed, %llu went on, %llu resumed, %llu frames meddled with, %llu steps, %.1f s of virtual time\n", u(completed),
                 u(completed_unverified), u(failed_transfers()), u(went_on), u(resumed), u(frame_faults), u(steps), static_cast<double>(virtual_us) * 1e-6);
    for (std::size_t i = 0; i < failed.size(); ++i)
      if (failed[i] > 0) std::fprintf(out, "  %8llu  %s\n", u(failed[i]), to_string(static_cast<errc>(i)).data());
    for (std::size_t i = 0; i < settled.size(); ++i)
      if (settled[i] > 0) std::fprintf(out, "  %8llu  transactions %s\n", u(settled[i]), to_string(static_cast<verdict>(i)).data());
    if (!passed() || unverified_wrong > 0)
      std::fprintf(out, "%llu false completions, %llu unverified and wrong, %llu writes outside, %llu broken contracts, %llu false counts, %llu false settlements, %llu leaks, %llu stuck (%s)\n", u(false_completions),
                   u(unverified_wrong), u(guard_violations), u(contract_violations), u(false_counts), u(false_settlements), u(leaks), u(stuck), first_failure != nullptr ? first_failure : "");
  }
};

}  // namespace tensorpull::testing
