// Finishes what a stream has to do before its first byte (a connect, a proxy's consent, a handshake), for programs that
// wait.
#pragma once

#include <tensorpull/links/posix/pollable_stream.hpp>
#include <tensorpull/links/posix/wait.hpp>

namespace tensorpull::detail {

/// Waits until the stream is established. Errors: what establish() calls them; timed_out; cancelled (noticed within 0.1
/// s).
template <pollable_stream Stream>
result<void> establish_by(Stream& s, std::chrono::steady_clock::time_point deadline, const stop_token& stop) noexcept {
  for (;;) {
    const establishment now = s.establish();
    if (now.status == io_status::ok) return {};
    if (now.status != io_status::would_block) return failure(now.code, 0, {}, now.system);
    if (stop.stop_requested()) return failure(errc::cancelled);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left <= left.zero()) return failure(errc::timed_out);
    wait_for_descriptor(s.native_handle(), now.waits_for, std::min(left, wait_step));
  }
}

}  // namespace tensorpull::detail
