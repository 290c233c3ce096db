// The common part of the checks of requirements, whatever the link: one that rests on others, and those of time.
#pragma once

#include <tensorpull/std/chrono.hpp>
#include <tensorpull/testing/conformance/conformance_report.hpp>

#include <initializer_list>

namespace tensorpull::testing::detail {

/// `Probe`: makes a new connection or pair for each check. A check that depends on another one is skipped if that one
/// failed, so that one fault is one failure.
template <class Probe>
class link_requirements {
 protected:
  explicit link_requirements(Probe& p) noexcept : probe_(p), report_(p.report) {}

  template <class F>
  void check(std::string_view number, std::string_view what, std::initializer_list<std::string_view> rests_on, F f) {
    report_.begin(number, what);
    for (const std::string_view n : rests_on)
      if (const auto* const c = report_.find(n); c == nullptr || c->result != check_result::passed)
        return report_.skip("it rests on %.*s", static_cast<int>(n.size()), n.data());
    if (auto c = probe_.connect()) f(*c);
  }
  /// Fails the check if each of five calls waited. `what`: the call, in words.
  template <class F>
  void promptly(const char* what, F call) {
    const std::uint64_t us = probe_.durations(5, call).first;
    if (us > static_cast<std::uint64_t>(probe_.options.prompt.count()) * 1000)
      report_.fail("%s took %llu ms", what, ull(us / 1000));
  }
  /// Fails the check if a call that may wait some_time lasts much less or much longer.
  template <class F>
  void about_as_long(F call) {
    const auto [shortest, longest] = probe_.durations(3, call);
    // a signal may end a wait early, and a busy machine late
    if (longest < some_us() / 2)
      report_.fail("asked to wait %d ms, it came back after %llu us", static_cast<int>(some_time.count()),
                   ull(longest));
    else if (shortest > some_us() + 1'000'000)
      report_.fail("asked to wait %d ms, it came back after %llu ms", static_cast<int>(some_time.count()),
                   ull(shortest / 1000));
  }
  template <class F>
  static bool becomes(F f) {
    for (int i = 0; i < 5; ++i)  // a signal may end a wait
      if (f()) return true;
    return false;
  }

  static constexpr std::byte untouched{0x5a};
  static constexpr std::chrono::milliseconds some_time{60};
  static constexpr std::uint64_t some_us() noexcept { return static_cast<std::uint64_t>(some_time.count()) * 1000; }
  static constexpr unsigned long long ull(std::uint64_t v) noexcept { return v; }

  Probe& probe_;
  conformance_report& report_;
};

}  // namespace tensorpull::testing::detail
