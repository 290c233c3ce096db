// Connects a Unix socket within a time, on the caller's thread.
#pragma once

#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/stop_token.hpp>
#include <tensorpull/transports/over/unix_socket/unix_address.hpp>
#include <tensorpull/transports/over/unix_socket/unix_stream.hpp>

#include <memory>
#include <new>

namespace tensorpull {

namespace detail {

/// Whether the other end is one that may be there: of this user, or root's.
inline bool is_same_user(const peer_identity& who) noexcept {
  return who.kind == identity_kind::user && (who.user == ::geteuid() || who.user == 0);
}

/// Whether the program at the other end is in a group in which this one is, too.
inline bool shares_group(const unix_stream& s, const peer_identity& who) noexcept {
  socklen_t bytes = 0;
  (void)::getsockopt(s.native_handle(), SOL_SOCKET, SO_PEERGROUPS, nullptr, &bytes);  // ERANGE, and how long they are
  const std::size_t theirs = bytes / sizeof(gid_t),
                    mine = static_cast<std::size_t>(std::max(::getgroups(0, nullptr), 0));
  const std::unique_ptr<gid_t[]> groups(new (std::nothrow) gid_t[theirs + mine + 2]);
  if (who.kind != identity_kind::user || !groups) return false;
  gid_t* const ours = groups.get() + theirs + 1;
  if (theirs > 0 && ::getsockopt(s.native_handle(), SOL_SOCKET, SO_PEERGROUPS, groups.get(), &bytes) != 0) return false;
  if (::getgroups(static_cast<int>(mine), ours) != static_cast<int>(mine)) return false;
  groups[theirs] = who.group;
  ours[mine] = ::getegid();
  for (std::size_t i = 0; i <= theirs; ++i)
    for (std::size_t k = 0; k <= mine; ++k)
      if (groups[i] == ours[k]) return true;
  return false;
}

/// Whether `access` allows what is at the other end; root, who may connect to any socket, believes nobody more.
inline bool may_be_there(const unix_stream& s, unix_access access) noexcept {
  if (access == unix_access::anyone) return true;
  const peer_identity who = s.peer();
  return is_same_user(who) || (access == unix_access::same_group && shares_group(s, who));
}

/// One try; the socket's mode and its time-out decide how long it may wait for room in the listener's queue. 0 or
/// errno.
inline int try_to_connect(const unix_stream& s, const unix_address& to, unix_access access) noexcept {
  if (::connect(s.native_handle(), to.get(), to.size()) != 0) return errno;
  return may_be_there(s, access) ? 0 : EPERM;  // somebody else may have put a socket where ours is expected
}

}  // namespace detail

/// Connects to a path or to an abstract name, and waits while the listener's queue is full. Errors: bad_address;
/// connection_failed with errno (ENOENT: no such file; ECONNREFUSED: nobody listens there; EPERM: another user listens
/// there than `access` allows); timed_out; cancelled.
inline result<unix_stream> unix_connect(std::string_view address, std::chrono::milliseconds timeout,
                                        const stop_token& stop = {},
                                        unix_access access = unix_access::same_user) noexcept {
  const auto to = unix_address::of(address);
  if (!to) return failure(to.error());
  unix_stream s(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (s.native_handle() < 0) return failure(errc::connection_failed, 0, address, errno);
  // a Unix socket whose listener is busy announces nothing, so the kernel waits, for one step at a time
  const timeval step{0, std::chrono::microseconds(detail::wait_step).count()};
  if (::setsockopt(s.native_handle(), SOL_SOCKET, SO_SNDTIMEO, &step, sizeof step) != 0)
    return failure(errc::connection_failed, 0, address, errno);
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    if (stop.stop_requested()) return failure(errc::cancelled);
    const int e = detail::try_to_connect(s, *to, access);
    if (e == 0) return s;
    if (e != EAGAIN && e != EINTR) return failure(errc::connection_failed, 0, address, e);
    if (detail::has_passed(std::chrono::steady_clock::now() - start, timeout))
      return failure(errc::timed_out, 0, address);
  }
}

/// The one end of a Unix address, for a program that connects without waiting.
class unix_destination {
 public:
  /// Error: bad_address.
  static result<unix_destination> of(std::string_view address, unix_access access = unix_access::same_user) noexcept {
    const auto to = unix_address::of(address);
    if (!to) return failure(to.error());
    return unix_destination(*to, access);
  }

  /// Whether it was not tried yet.
  bool more() const noexcept { return more_; }
  /// Connects at once or not at all. Error: connection_failed with errno (EAGAIN: the listener's queue is full).
  result<unix_stream> start_connect() noexcept {
    more_ = false;
    unix_stream s(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int e = s.native_handle() < 0 ? errno : detail::try_to_connect(s, to_, access_);
    if (e != 0) return failure(errc::connection_failed, 0, {}, e);
    return s;
  }

 private:
  unix_destination(const unix_address& to, unix_access access) noexcept : to_(to), access_(access) {}
  unix_address to_;
  unix_access access_;
  bool more_ = true;
};

}  // namespace tensorpull
