// The common part of listeners over plain sockets: one connection, without waiting or with.
#pragma once

#include <tensorpull/links/posix/posix_stream.hpp>
#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/std/stop_token.hpp>

namespace tensorpull::detail {

/// The next connection; does not wait. Errors: timed_out: none is waiting; out_of_memory with errno: no descriptors or
/// memory now; io with errno.
inline result<posix_stream> accept_socket(int listening) noexcept {
  for (;;) {
    const int fd = ::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) return posix_stream(fd);
    const int e = errno;
    if (e == EINTR || e == ECONNABORTED) continue;
    if (e == EAGAIN || e == EWOULDBLOCK) return failure(errc::timed_out);
    return failure(e == EMFILE || e == ENFILE || e == ENOBUFS || e == ENOMEM ? errc::out_of_memory : errc::io, 0, {},
                   e);
  }
}

/// The listener's next connection; waits on its socket for it. Errors: timed_out, cancelled (noticed within 0.1 s), and
/// the others of accept().
template <class Listener>
auto accept_within(Listener& from, posix_stream& socket, std::chrono::milliseconds timeout,
                   const stop_token& stop) noexcept -> decltype(from.accept()) {
  for (const auto deadline = deadline_after(timeout);;) {
    if (auto s = from.accept(); s || s.error().code != errc::timed_out) return s;
    if (stop.stop_requested()) return failure(errc::cancelled);
    const auto left = left_until(deadline);
    if (left.count() <= 0) return failure(errc::timed_out);
    socket.wait(true, false, std::min(wait_step, left));
  }
}

}  // namespace tensorpull::detail
