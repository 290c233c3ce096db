// The last line of a conformance check that crashes: which requirement was being checked.
#pragma once

#include <tensorpull/testing/conformance/conformance_report.hpp>

#include <array>
#include <csignal>

#include <unistd.h>

namespace tensorpull::testing::detail {

/// While it lives, a crash in what is checked (bad memory, abort(), an exception that leaves a noexcept function) first
/// prints the current check to standard error. Then the program ends as it would have. A stack that overflows has no
/// line.
class crash_line {
 public:
  explicit crash_line(const conformance_report& report) noexcept {
    current() = &report;
    struct sigaction mine{};
    mine.sa_sigaction = &crashed;
    mine.sa_flags = SA_SIGINFO;
    ::sigemptyset(&mine.sa_mask);
    for (std::size_t i = 0; i < signals.size(); ++i) ::sigaction(signals[i], &mine, &before()[i]);
  }
  crash_line(const crash_line&) = delete;
  crash_line& operator=(const crash_line&) = delete;
  ~crash_line() { restore(); }

 private:
  static constexpr std::array signals{SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

  static const conformance_report*& current() noexcept {
    static const conformance_report* report = nullptr;
    return report;
  }
  static std::array<struct sigaction, 5>& before() noexcept {
    static std::array<struct sigaction, 5> b{};
    return b;
  }
  static void restore() noexcept {
    for (std::size_t i = 0; i < signals.size(); ++i) ::sigaction(signals[i], &before()[i], nullptr);
  }
  static void print(std::string_view text) noexcept {
    if (::write(STDERR_FILENO, text.data(), text.size()) < 0) return;
  }
  /// Only calls what a signal handler may call.
  static void crashed(int signal, siginfo_t* info, void*) noexcept {
    restore();
    const auto checks = current()->checks();
    print("FAILED ");
    if (!checks.empty()) {
      print(checks.back().number);
      print(" ");
      print(checks.back().what);
    }
    print(": the program crashed in this check\n");
    // a fault happens again when this returns, and abort() goes on; what a call has raised does not
    if (info->si_code <= 0 && signal != SIGABRT) ::raise(signal);
  }
};

}  // namespace tensorpull::testing::detail
