// Listens on a Unix socket. Its file appears with its permissions and a listener behind it, and goes with the listener.
#pragma once

#include <tensorpull/core/detail/replace.hpp>
#include <tensorpull/links/posix/detail/accept.hpp>
#include <tensorpull/system/detail/file_descriptor.hpp>
#include <tensorpull/system/entropy.hpp>
#include <tensorpull/system/files.hpp>
#include <tensorpull/transports/over/unix_socket/unix_connect.hpp>

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdio>

namespace tensorpull {

namespace detail {

/// Has the system refuse descriptors that are passed to the connections of this listener (Linux 6.16). Nobody is to
/// pass any to an owner: what is thrown away is closed on this thread, and the close of a socket that lingers, or of a
/// file of somebody's own file system, takes as long as the other end likes.
inline void refuse_descriptors(int listening) noexcept {
#ifdef SO_PASSRIGHTS
  constexpr int option = SO_PASSRIGHTS;
#else
  constexpr int option = 83;  // of asm-generic/socket.h, which most machines have
#endif
  const int off = 0;
  (void)::setsockopt(listening, SOL_SOCKET, option, &off, sizeof off);
}

/// The file of a listening socket. Its end removes the file, if it is still the same one. The folder is kept open, so
/// the program may change its working directory meanwhile.
class socket_file {
 public:
  socket_file() noexcept = default;
  socket_file(socket_file&&) noexcept = default;
  socket_file& operator=(socket_file&& other) noexcept { return detail::replace(*this, std::move(other)); }
  ~socket_file() {
    if (folder_ && is(name_.data(), about_)) ::unlinkat(folder_.get(), name_.data(), 0);
  }

  /// Binds the socket and listens under a random name, and renames the file then. So a program that finds the file
  /// finds its permissions and its listener. A socket file that refuses connections has no listener and will have none:
  /// it is replaced, if it is this user's. 0 or errno; EADDRINUSE: something else has the name.
  int place(int socket, const unix_address& at, int backlog, mode_t permissions) noexcept {
    const std::string_view path = at.path();
    const std::size_t before = path.rfind('/') + 1;  // 0 without a slash
    if (before == path.size()) return EISDIR;
    path.copy(name_.data(), path.size() - before, before);
    std::array<char, unix_address::longest + 16> aside{'.'};
    path.copy(aside.data(), before);
    file_descriptor folder(::open(aside.data(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!folder) return errno;
    char* const other_name = aside.data() + before;
    (void)std::snprintf(other_name, 10, ".%08x", static_cast<unsigned>(system_entropy{}()));
    const auto there = unix_address::of(aside.data());
    if (!there) return ENAMETOOLONG;

    // bind() takes the permissions from the socket, less those of the umask, so that the file has never more than these
    if (::fchmod(socket, S_IRUSR | S_IWUSR) != 0 || ::bind(socket, there->get(), there->size()) != 0) return errno;
    int failed = 0;
    if (::fstatat(folder.get(), other_name, &about_, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISSOCK(about_.st_mode))
      return ESTALE;
    if ((about_.st_mode & 07777) != permissions &&
        ::fchmodat(folder.get(), other_name, permissions, AT_SYMLINK_NOFOLLOW) != 0)
      failed = errno;
    else if (::listen(socket, backlog) != 0) failed = errno;
    else failed = appear(folder.get(), other_name, at);
    if (failed != 0) {
      ::unlinkat(folder.get(), other_name, 0);
      return failed;
    }
    folder_ = std::move(folder);
    return 0;
  }

 private:
  /// Renames the file. If there is one of that name, they swap names first, so that it is known which file is removed.
  int appear(int folder, const char* from, const unix_address& at) const noexcept {
    if (const int failed = rename_unless_taken(folder, from, name_.data()); failed != EEXIST) return failed;
    // while it is open, no other file gets its number
    const file_descriptor old(::openat(folder, name_.data(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat found{};
    if (!old && errno != ENOENT) return errno;
    if (!old || ::fstat(old.get(), &found) != 0 || !S_ISSOCK(found.st_mode) || found.st_uid != about_.st_uid)
      return EADDRINUSE;
    if (const int why = not_deserted(at); why != 0) return why;
    if (::renameat2(folder, from, folder, name_.data(), RENAME_EXCHANGE) != 0) {
      std::array<char, 10> aside{};
      (void)std::snprintf(aside.data(), aside.size(), ".%08x", static_cast<unsigned>(system_entropy{}()));
      int failed = rename_unless_taken(folder, name_.data(), aside.data());
      if (failed != 0) return failed;
      const bool ours = is(folder, aside.data(), found);
      failed = rename_unless_taken(folder, ours ? from : aside.data(), name_.data());
      if (ours) ::unlinkat(folder, aside.data(), 0);
      return ours && failed != EEXIST ? failed : EADDRINUSE;
    }
    if (is(folder, from, found)) {
      ::unlinkat(folder, from, 0);
      return 0;
    }
    // another program has put its socket there meanwhile
    ::renameat2(folder, from, folder, name_.data(), RENAME_EXCHANGE);
    return EADDRINUSE;
  }
  /// 0: nobody listens there. EADDRINUSE, or why that cannot be known.
  static int not_deserted(const unix_address& at) noexcept {
    const file_descriptor s(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!s) return errno;
    return ::connect(s.get(), at.get(), at.size()) != 0 && errno == ECONNREFUSED ? 0 : EADDRINUSE;
  }
  static bool is(int folder, const char* name, const struct stat& expected) noexcept {
    struct stat now{};
    return ::fstatat(folder, name, &now, AT_SYMLINK_NOFOLLOW) == 0 && now.st_dev == expected.st_dev &&
           now.st_ino == expected.st_ino;
  }
  bool is(const char* name, const struct stat& expected) const noexcept { return is(folder_.get(), name, expected); }

  file_descriptor folder_;
  std::array<char, unix_address::longest + 1> name_{};
  struct stat about_{};
};

}  // namespace detail

/// A listening Unix socket. Movable; the destructor closes it and removes its file, unless another file has replaced
/// it.
class unix_listener {
 public:
  /// Listens at a path or under an abstract name. `backlog`: connections that may wait. `takes_descriptors`: either end
  /// may pass them, as the sessions of shared_memory do. The socket's own file of an
  /// earlier run, behind which nobody listens any more, is replaced; another file is not, nor another user's, nor one
  /// behind which somebody listens. The file system needs hard links, or renameat2() with RENAME_NOREPLACE. Without
  /// RENAME_EXCHANGE nobody has the name for a moment while an old file is replaced. A program that is killed leaves
  /// the file. Errors: bad_address: also, if the folder leaves no room for a name of nine bytes, or the path ends with
  /// a slash; invalid_argument: an abstract name has no group; connection_failed with errno (EADDRINUSE: something else
  /// is there).
  static result<unix_listener> open(std::string_view address, unix_access access = unix_access::same_user,
                                    int backlog = 128, bool takes_descriptors = false) noexcept {
    const auto at = unix_address::of(address);
    if (!at) return failure(at.error());
    if (at->is_abstract() && access == unix_access::same_group) return failure(errc::invalid_argument, 0, address);
    unix_listener out(unix_stream(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), access);
    const int socket = out.native_handle();
    if (socket < 0) return failure(errc::connection_failed, 0, address, errno);
    int failed = 0;
    if (!takes_descriptors) detail::refuse_descriptors(socket);
    if (!at->is_abstract()) failed = out.file_.place(socket, *at, backlog, permissions(access));
    else if (::bind(socket, at->get(), at->size()) != 0 || ::listen(socket, backlog) != 0) failed = errno;
    if (failed == ENAMETOOLONG || failed == EISDIR) return failure(errc::bad_address, address.size(), address);
    if (failed != 0) return failure(errc::connection_failed, 0, address, failed);
    return out;
  }

  /// The descriptor, which stays the listener's.
  int native_handle() const noexcept { return socket_.native_handle(); }

  /// The next connection; does not wait. One of a user that `access` excludes is closed. Errors: timed_out: none is
  /// waiting; out_of_memory with errno: no descriptors or memory now; io with errno.
  result<unix_stream> accept() noexcept {
    for (int tries = 0; tries < 64; ++tries) {  // strangers must not keep this thread
      auto accepted = detail::accept_socket(native_handle());
      if (!accepted) return failure(accepted.error());
      unix_stream s(accepted->release());
      if (access_ != unix_access::same_user || detail::is_same_user(s.peer()))
        return s;  // an abstract name has no permissions
    }
    return failure(errc::timed_out);
  }
  /// The next connection; waits for it. Errors: timed_out, cancelled (noticed within 0.1 s), out_of_memory, io with
  /// errno.
  result<unix_stream> accept(std::chrono::milliseconds timeout, const stop_token& stop = {}) noexcept {
    return detail::accept_within(*this, socket_, timeout, stop);
  }

 private:
  unix_listener(unix_stream s, unix_access access) noexcept : socket_(std::move(s)), access_(access) {}

  static constexpr mode_t permissions(unix_access access) noexcept {
    switch (access) {
      case unix_access::same_user: return 0600;
      case unix_access::same_group: return 0660;
      default: return 0666;
    }
  }
  unix_stream socket_;
  unix_access access_;
  // after the socket: the file goes while the socket still listens, so that no other program takes it for deserted
  detail::socket_file file_;
};

static_assert(stream_listener<unix_listener, unix_stream>);

}  // namespace tensorpull
