// The loop of tries of a host, for what is not a pull, such as a connect, an upload or a file of any kind.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/protocol/retry.hpp>
#include <tensorpull/pull/platform.hpp>
#include <tensorpull/std/stop_token.hpp>
#include <tensorpull/system/host_platform.hpp>

namespace tensorpull::detail {

/// Calls `once() -> result<T>` until it succeeds, until `tries` has no more, or until `stop` is requested (cancelled,
/// within 0.1 s). Between two it sleeps as long as the policy and a busy peer ask for: `asked()` gives that time.
/// `landed()`: bytes that no later try has to bring; fewer than 16 KiB more of them are no progress.
template <class Once, class Asked, class Landed>
auto keep_trying(Once once, retry_state tries, const stop_token& stop, Asked asked,
                 Landed landed) noexcept(noexcept(once())) -> decltype(once()) {
  for (;;) {
    auto how = once();
    if (how) return how;
    const auto delay = tries.after(how.error().code, landed(), asked(), host_platform::random(), 16 * 1024);
    if (!delay) return how;
    if (!rest<host_platform>(*delay, [&]() noexcept { return stop.stop_requested(); }, &pause))
      return failure(errc::cancelled);
  }
}

/// The same where a try keeps nothing of those before it.
template <class Once, class Asked>
auto keep_trying(Once once, retry_state tries, const stop_token& stop, Asked asked) noexcept(noexcept(once()))
    -> decltype(once()) {
  return keep_trying(once, tries, stop, asked, [] { return std::uint64_t{0}; });
}

}  // namespace tensorpull::detail
