// The common part of the checks of requirements: one that rests on others, those of time, and the checks that streams
// and datagram links share.
#pragma once

#include <tensorpull/testing/conformance/detail/link_probe.hpp>
#include <tensorpull/testing/conformance/detail/pipe_signals.hpp>

#include <initializer_list>

namespace tensorpull::testing::detail {

/// `Probe`: makes a new connection or pair for each check. A check that depends on another one is skipped if that one
/// failed, so that one fault is one failure.
template <class Probe>
class link_requirements {
 protected:
  using pair = typename Probe::pair;
  using link_end = typename Probe::link_end;

  explicit link_requirements(Probe& p) noexcept : probe_(p), report_(p.report) {}

  /// False: the check is skipped.
  bool begins(std::string_view number, std::string_view what, std::initializer_list<std::string_view> rests_on) {
    report_.begin(number, what);
    for (const std::string_view n : rests_on)
      if (const auto* const c = report_.find(n); c == nullptr || c->result != check_result::passed)
        report_.skip("it rests on %.*s", static_cast<int>(n.size()), n.data());
    return report_.holds();
  }
  template <class Self>
  void check(std::string_view number, std::string_view what, std::initializer_list<std::string_view> rests_on,
             void (Self::*judge)(pair&)) {
    if (!begins(number, what, rests_on)) return;
    if (auto c = probe_.connect()) (static_cast<Self&>(*this).*judge)(*c);
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
    constexpr auto us = static_cast<std::uint64_t>(some_time.count()) * 1000;
    if (longest < us / 2 || shortest > us + 1'000'000)
      report_.fail("asked to wait %llu us, it came back after %llu to %llu us", ull(us), ull(shortest), ull(longest));
  }
  template <class F>
  static bool becomes(F f) {
    for (int i = 0; i < 5; ++i)  // a signal may end a wait
      if (f()) return true;
    return false;
  }
  static void destroy(link_end& e) { const link_end gone = std::move(e); }

  // The checks of both kinds of link. Those of an idle link look at the left end.
  void idle_status(pair& c) {
    const io_result io = Probe::take(c.left);
    if (io.status != io_status::would_block || io.bytes != 0)
      report_.fail("an idle link answered status %d with %zu bytes, and not would_block", static_cast<int>(io.status),
                   io.bytes);
  }
  void takes_promptly(pair& c) {
    promptly("a read of an idle link", [&] { (void)Probe::take(c.left); });
  }
  void wait_for_arrival(pair& c) {
    if (!probe_.let_arrive(c)) report_.fail("something was sent, and it does not say that reading can go on");
  }
  void wait_for_room(pair& c) {
    if (!becomes([&] { return c.left.wait(false, true, some_time).write; }))
      report_.fail("nothing was sent yet, and it does not say that sending can go on");
  }
  /// Waits, and reads if there is something: it may be for the link itself, as a TLS session ticket is, and be gone
  /// when it was read.
  bool wait_and_take(pair& c, std::chrono::milliseconds time) {
    if (!c.left.wait(true, false, time).read) return false;
    (void)Probe::take(c.left);
    return true;
  }
  void wait_idle(pair& c) {
    int times = 0;
    for (int i = 0; i < 3; ++i) times += wait_and_take(c, 1ms) ? 1 : 0;
    if (times == 3) report_.fail("on an idle link it reports that reading can go on: a loop that waits would spin");
  }
  void wait_lasts(pair& c) {
    about_as_long([&] { (void)wait_and_take(c, some_time); });
  }
  void wait_as_asked(pair& c) {
    if (!probe_.let_arrive(c)) report_.fail("nothing arrived");
    else if (c.right.wait(true, false, some_time).write) report_.fail("asked about reading, it answers about sending");
    else if (c.right.wait(false, true, some_time).read) report_.fail("asked about sending, it answers about reading");
  }
  void signals(pair&) { pipe_signals::judge(report_); }
  /// Fails the check if twenty calls of `round` make more allocations than the link states for each.
  template <class F>
  void allocates(std::uint64_t stated, F round) {
    if (probe_.options.allocations == nullptr)
      return report_.skip("the program does not count allocations (conformance_options::allocations)");
    const std::uint64_t before = probe_.options.allocations();
    for (int i = 0; i < 20; ++i) round();
    const std::uint64_t made = probe_.options.allocations() - before;
    if (made > 20 * stated)
      report_.fail("to send and receive 20 times took %llu heap allocations, and the link states %llu for each",
                   ull(made), ull(stated));
  }

  static constexpr std::byte untouched{0x5a};
  static constexpr std::chrono::milliseconds some_time = 60ms;
  static constexpr unsigned long long ull(std::uint64_t v) noexcept { return v; }

  Probe& probe_;
  conformance_report& report_;
};

}  // namespace tensorpull::testing::detail
