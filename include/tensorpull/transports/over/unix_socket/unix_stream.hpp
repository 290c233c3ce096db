// A connected Unix socket as a byte_stream that knows who is at its other end.
#pragma once

#include <tensorpull/core/peer_identity.hpp>
#include <tensorpull/links/posix/posix_stream.hpp>

namespace tensorpull {

/// The programs that may be at the other end of a Unix socket. This is the rule of the listener, and connect() holds
/// the listener to it in turn. Before Linux 6.16 a program that is let in can make an owner's thread wait
/// (.github/SECURITY.md, Unix sockets).
enum class unix_access : std::uint8_t {
  same_user,  ///< programs of this user, and root's: the socket file has the permissions 0600
  /// those of the file's group, too: 0660. An abstract name has no group. A client wants a listener with a group in
  /// common
  same_group,
  anyone,  ///< every program of this machine: 0666
};

/// Owns a connected Unix socket. One thread at a time.
class unix_stream : public posix_stream {
 public:
  using posix_stream::posix_stream;

  /// The user at the other end, as the kernel recorded it when that end connected or began to listen; `process` may
  /// have ended since, and its number may be another's. A user of another user namespace that has no number here is
  /// 65534. `none`: the socket is not connected.
  peer_identity peer() const noexcept {
    ucred other{};
    socklen_t size = sizeof other;
    peer_identity who;
    if (::getsockopt(native_handle(), SOL_SOCKET, SO_PEERCRED, &other, &size) != 0 ||
        other.uid == static_cast<uid_t>(-1))
      return who;
    who.kind = identity_kind::user;
    who.user = other.uid;
    who.group = other.gid;
    who.process = other.pid;
    return who;
  }
};

static_assert(pollable_stream<unix_stream>);

}  // namespace tensorpull
