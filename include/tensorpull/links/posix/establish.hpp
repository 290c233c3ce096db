// Finishes what a stream has to do before its first byte (a connect, a proxy's consent, a handshake), for programs that
// wait.
#pragma once

#include <tensorpull/links/posix/pollable_stream.hpp>
#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/std/stop_token.hpp>

namespace tensorpull::detail {

/// Waits until the stream is established. Errors: what establish() calls them; timed_out; cancelled (noticed within 0.1
/// s).
template <pollable_stream Stream>
result<void> establish_by(Stream& s, std::chrono::steady_clock::time_point deadline, const stop_token& stop) noexcept {
  for (;;) {
    const establishment now = s.establish();
    if (now.status == io_status::ok) return {};
    if (now.status != io_status::would_block) return failure(now.code, 0, now.why, now.system);
    if (stop.stop_requested()) return failure(errc::cancelled);
    const auto left = left_until(deadline);
    if (left <= left.zero()) return failure(errc::timed_out);
    wait_for_descriptor(s.native_handle(), now.waits_for, std::min(left, wait_step));
  }
}

/// The stream that `make() -> result<S>` gives, ready for its first byte: what connecting has left to its establish()
/// is done here, within `timeout` in all. Other links are passed on as they are.
template <class Make>
[[gnu::noinline]]  // so that its frame is not a part of the pull that follows
auto established(Make make, std::chrono::milliseconds timeout, const stop_token& stop) noexcept -> decltype(make()) {
  if constexpr (requires { make()->establish(); }) {
    const auto deadline = deadline_after(timeout);
    auto made = make();
    if (made)
      if (const auto ok = establish_by(*made, deadline, stop); !ok) return failure(ok.error());
    return made;
  } else return make();
}

}  // namespace tensorpull::detail
