// The loop of tries: a connect, a pull or an upload is tried again by its policy, and the wait between two tries can be
// ended.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/protocol/retry.hpp>
#include <tensorpull/pull/platform.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <cstdint>

namespace tensorpull::detail {

/// Waits for `time` with `pause(left)`, which waits at most that long and returns; no step is longer than wait_step.
/// False: `stopped()` was true.
template <platform P, class Stopped, class Pause>
bool rest(std::chrono::milliseconds time, Stopped stopped, Pause& pause) noexcept {
  for (stopwatch<P> waited;;) {
    if (stopped()) return false;
    const auto left = waited.left(time);
    if (left <= left.zero()) return true;
    pause(std::min(left, wait_step));
  }
}

/// Calls `once() -> result<T>` until it succeeds. After an error, `rest(error) -> errc` counts the try and waits:
/// errc{} means that there is another try. Any other code is how all ends: that of the error, or cancelled.
template <class Once, class Rest>
auto keep_trying(Once once, Rest rest) -> decltype(once()) {
  for (;;) {
    auto how = once();
    if (how) return how;
    const errc end = rest(how.error());
    if (end == errc{}) continue;
    if (end != how.error().code) return failure(end);
    return how;
  }
}

/// The same for something that has a connection: `connect() -> result<Link>` makes one for each try, and
/// `once(link, again) -> result<void>` uses it: `again(step)` calls `step() -> result<void>` over this link as long as
/// the owner is busy. A connection that cannot be made is tried again, too, the first one as well.
template <class Connect, class Once, class Rest>
result<void> keep_trying(Connect& connect, Once once, Rest rest) {
  const auto again = [&](auto step) {
    // over the same connection, which may be in the middle of a frame
    return keep_trying(step, [&](const error& why) { return why == errc::busy ? rest(why) : why.code; });
  };
  return keep_trying(
      [&]() -> result<void> {
        auto link = connect();
        if (!link) return failure(link.error());
        return once(*link, again);
      },
      rest);
}

}  // namespace tensorpull::detail
