// The loop of tries of a host, for what keeps nothing from one try to the next, such as a connect or an upload.
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
template <class Once, class Asked>
auto keep_trying(Once once, retry_state tries, const stop_token& stop, Asked asked) noexcept(noexcept(once()))
    -> decltype(once()) {
  for (;;) {
    auto how = once();
    if (how) return how;
    const auto delay = tries.after(how.error().code, 0, asked(), host_platform::random());
    if (!delay) return how;
    if (!rest<host_platform>(*delay, [&]() noexcept { return stop.stop_requested(); }, &pause))
      return failure(errc::cancelled);
  }
}

}  // namespace tensorpull::detail
