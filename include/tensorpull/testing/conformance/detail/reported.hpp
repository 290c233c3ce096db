// The beginning of every check of a kind of link: its report, and what a crash or a signal leaves in it.
#pragma once

#include <tensorpull/testing/conformance/conformance_options.hpp>
#include <tensorpull/testing/conformance/conformance_report.hpp>
#include <tensorpull/testing/conformance/detail/crash_line.hpp>
#include <tensorpull/testing/conformance/detail/pipe_signals.hpp>

namespace tensorpull::testing::detail {

/// The report of `check(report)`. A link that raises SIGPIPE fails a check instead of ending the program, and one that
/// crashes has a line.
template <class F>
conformance_report reported(F check) {
  conformance_report report;
  const pipe_signals signals;
  const crash_line crash(report);
  check(report);
  return report;
}

}  // namespace tensorpull::testing::detail
