// Files. System calls are repeated if they were interrupted or did only a part of their work; errors are values, and no
// signal is raised. positioned_file is read at positions: a regular file, by any name that leads to one.
// atomic_file appears under its name complete, or not at all: it is written next to that under another name, then
// renamed.
#pragma once

#include <tensorpull/core/checked.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/system/detail/file_descriptor.hpp>
#include <tensorpull/system/detail/held_signal.hpp>
#include <tensorpull/system/entropy.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

namespace tensorpull::detail {

inline unexpected file_failure(int system, error_name file, std::uint64_t at = 0) noexcept {
  return failure(system == ENOSPC || system == EDQUOT ? errc::disk_full : errc::io, at, file, system);
}

/// Repeats the call while a signal interrupts it.
template <class Call>
auto uninterrupted(Call call) noexcept {
  decltype(call()) n;
  do n = call();
  while (n < 0 && errno == EINTR);
  return n;
}

/// Writes all of the bytes at `at`. 0, or errno.
inline int write_all(int fd, std::uint64_t at, std::span<const std::byte> bytes) noexcept {
  if (at > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max()) - bytes.size()) return EFBIG;
  held_signal quiet(SIGXFSZ);
  while (!bytes.empty()) {
    const ssize_t n = uninterrupted([&] { return ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at)); });
    if (n == 0) return EIO;  // POSIX has no meaning for it; going on would wait for ever
    if (n < 0) {
      if (errno == EFBIG) quiet.forget();
      return errno;
    }
    at += static_cast<std::uint64_t>(n);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return 0;
}

inline constexpr int file_ends = -1;
/// Reads all of the bytes at `at`, which is then the first one that was not read. 0, errno, or file_ends.
inline int read_all(int fd, std::uint64_t& at, std::span<std::byte> out) noexcept {
  if (!range_within(at, out.size(), static_cast<std::uint64_t>(std::numeric_limits<off_t>::max()))) return file_ends;
  while (!out.empty()) {
    const ssize_t n = uninterrupted([&] { return ::pread(fd, out.data(), out.size(), static_cast<off_t>(at)); });
    if (n <= 0) return n == 0 ? file_ends : errno;
    at += static_cast<std::uint64_t>(n);
    out = out.subspan(static_cast<std::size_t>(n));
  }
  return 0;
}

/// Whether the file can become `bytes` long. ENOSPC: its file system has less room left than the file lacks. EFBIG: no
/// file can. Otherwise 0. Nothing is reserved, so it may be full later. A file system that does not say what is left is
/// believed to have room.
inline int room_for(int fd, std::uint64_t bytes) noexcept {
  if (bytes > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) return EFBIG;
  struct stat there{};
  struct statvfs left{};
  if (::fstat(fd, &there) != 0 || uninterrupted([&] { return ::fstatvfs(fd, &left); }) != 0 || left.f_blocks == 0)
    return 0;
  const std::uint64_t taken = static_cast<std::uint64_t>(there.st_blocks) * 512;
  return bytes > taken && (bytes - taken) / left.f_frsize > left.f_bfree ? ENOSPC : 0;
}

/// Makes the file `bytes` long. New bytes are a hole, which takes no room. 0, or errno.
inline int resize(int fd, std::uint64_t bytes) noexcept {
  held_signal quiet(SIGXFSZ);
  const int system = uninterrupted([&] { return ::ftruncate(fd, static_cast<off_t>(bytes)); }) == 0 ? 0 : errno;
  if (system == EFBIG) quiet.forget();
  return system;
}

}  // namespace tensorpull::detail

namespace tensorpull {

/// One descriptor, open for reading; no heap, no mapping, no position: reads from several threads do not disturb each
/// other. It stays the file that was opened, whatever happens to its name. Its bytes are the file system's: a change by
/// another program is seen.
class positioned_file {
 public:
  /// Symbolic links are followed, as everywhere when reading (caches of models consist of them). A path that does not
  /// lead to a regular file is refused without waiting for it or reading from it.
  /// Errors, with the file's name without its directory: io with errno (ENOENT, EACCES, ...; EISDIR; EINVAL: a pipe, a
  /// socket, a device; ENAMETOOLONG), invalid_argument (an empty path, or one with a NUL in it).
  [[nodiscard]] static result<positioned_file> open(std::string_view path) noexcept {
    const std::string_view name = path.substr(path.find_last_of('/') + 1);
    if (path.empty() || path.find('\0') != path.npos) return failure(errc::invalid_argument, 0, name);
    std::array<char, PATH_MAX> text{};
    if (path.size() >= text.size()) return detail::file_failure(ENAMETOOLONG, name);
    std::copy(path.begin(), path.end(), text.begin());
    // O_NONBLOCK: a pipe without a writer must not hold us up before it is refused. It means nothing for a regular
    // file.
    detail::file_descriptor fd(
        detail::uninterrupted([&] { return ::open(text.data(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); }));
    struct stat about{};
    if (!fd || ::fstat(fd.get(), &about) != 0) return detail::file_failure(errno == ENXIO ? EINVAL : errno, name);
    if (!S_ISREG(about.st_mode)) return detail::file_failure(S_ISDIR(about.st_mode) ? EISDIR : EINVAL, name);
    return positioned_file(std::move(fd), static_cast<std::uint64_t>(about.st_size), name);
  }

  /// Bytes of the file when it was opened.
  std::uint64_t size() const noexcept { return size_; }
  /// Its name without the directory, cut to what an error carries.
  const error_name& name() const noexcept { return name_; }
  /// The descriptor, which stays the file's: do not close it.
  int descriptor() const noexcept { return fd_.get(); }

  /// Reads the file's bytes [offset, offset + out.size()), all of them. Errors: io, with errno, or without if the file
  /// ends before (it was longer once, or the range was never in it); `at` is the first byte that could not be read.
  /// `out` is then unspecified.
  [[nodiscard]] result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const noexcept {
    const int system = detail::read_all(fd_.get(), offset, out);
    if (system == detail::file_ends) return failure(errc::io, offset, name_);
    return system == 0 ? result<void>{} : detail::file_failure(system, name_, offset);
  }

 private:
  positioned_file(detail::file_descriptor fd, std::uint64_t size, error_name name) noexcept
      : fd_(std::move(fd)), size_(size), name_(name) {}

  detail::file_descriptor fd_;
  std::uint64_t size_;
  error_name name_;
};

}  // namespace tensorpull

namespace tensorpull::detail {

/// The file system's record of a file's last change. Changes within one tick of its clock (milliseconds; before Linux
/// 6.13) may have the same one.
struct file_stamp {
  /// Seconds and nanoseconds; -1: they are not known.
  std::int64_t modified = -1, modified_part = 0, changed = 0, changed_part = 0;
  std::uint64_t bytes = 0;

  friend bool operator==(const file_stamp&, const file_stamp&) noexcept = default;
};
inline file_stamp stamp_of(int fd) noexcept {
  struct stat about{};
  if (::fstat(fd, &about) != 0) return {};
  return {about.st_mtim.tv_sec, about.st_mtim.tv_nsec, about.st_ctim.tv_sec, about.st_ctim.tv_nsec,
          static_cast<std::uint64_t>(about.st_size)};
}

/// Two descriptors and two names; no heap. The directory is opened once: what happens to the path above it later does
/// not matter. A process that is killed leaves at most `.NAME.PID.RANDOM.part` behind; or `.NAME.part`, which the next
/// process continues, if it asks to.
class atomic_file {
 public:
  atomic_file(atomic_file&&) noexcept = default;
  atomic_file& operator=(atomic_file&& other) noexcept {
    discard();
    directory_ = std::move(other.directory_);
    file_ = std::move(other.file_);
    name_ = other.name_;
    temporary_ = other.temporary_;
    left_ = other.left_;
    touched_ = other.touched_;
    overwrite_ = other.overwrite_;
    return *this;
  }
  ~atomic_file() { discard(); }

  /// `resumable`: the other name is `.NAME.part`, and what is there is opened as it is. It is one process's at a time
  /// (EAGAIN). Errors: invalid_argument (no file name); io, or disk_full, with errno and the name. Its permissions are
  /// those of the file that it is to replace, from the start; if there is none, 0644 less the umask.
  static result<atomic_file> create(std::string_view path, bool overwrite, bool resumable = false) noexcept {
    const std::size_t slash = path.rfind('/');
    const std::string_view name = slash == path.npos ? path : path.substr(slash + 1);
    const std::string_view parent = slash == path.npos ? "." : path.substr(0, slash + 1);
    if (name.empty() || name == "." || name == ".." || path.find('\0') != path.npos)
      return failure(errc::invalid_argument, 0, path);
    if (name.size() > NAME_MAX || parent.size() >= PATH_MAX) return file_failure(ENAMETOOLONG, name);
    atomic_file made(name, overwrite);
    std::array<char, PATH_MAX> directory{};
    std::copy(parent.begin(), parent.end(), directory.begin());
    made.directory_ = file_descriptor(
        uninterrupted([&] { return ::open(directory.data(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
    if (!made.directory_) return file_failure(errno, name);
    if (const int system = made.refusal(); system != 0) return file_failure(system, name);
    const int system = resumable ? made.open_partial() : made.open_temporary();
    if (system != 0) return file_failure(system, name);
    made.left_ = stamp_of(made.file_.get());
    return made;
  }

  bool open() const noexcept { return static_cast<bool>(file_); }
  error_name name() const noexcept { return std::string_view(name_.data()); }

  /// Bytes that are there.
  std::uint64_t size() const noexcept {
    struct stat about{};
    return ::fstat(file_.get(), &about) == 0 ? static_cast<std::uint64_t>(about.st_size) : 0;
  }
  /// Makes it `bytes` long if there is room for that now. Takes none: the blocks come with the bytes.
  result<void> extend(std::uint64_t bytes) noexcept {
    if (const int system = room_for(file_.get(), bytes); system != 0) return done(system, bytes);
    return change(bytes, [&] { return resize(file_.get(), bytes); });
  }
  result<void> read(std::uint64_t at, std::span<std::byte> out) const noexcept {
    std::uint64_t reached = at;
    const int system = read_all(file_.get(), reached, out);
    return done(system == file_ends ? EIO : system, at);
  }
  result<void> write(std::uint64_t at, std::span<const std::byte> bytes) noexcept {
    return change(at, [&] { return write_all(file_.get(), at, bytes); });
  }
  /// Whether the file was changed by anybody else since create(), as far as its times say; also by a change of its
  /// permissions. A change in the very moment of one of our own is not seen. Once true, it stays so.
  bool touched() noexcept {
    touched_ = touched_ || left_.modified == -1 || stamp_of(file_.get()) != left_;
    return touched_;
  }

  /// Cuts the file, which has to be `length` bytes long, to `bytes`, and writes it to the disk if `synchronise`.
  /// ESTALE: another process has removed, replaced or cut the file.
  result<void> complete(std::uint64_t length, std::uint64_t bytes, bool synchronise) noexcept {
    if (!has_name(length)) return done(ESTALE, bytes);
    if (const auto ok = change(bytes, [&] { return resize(file_.get(), bytes); }); !ok) return ok;
    int system = 0;
    if (synchronise) {
      if (uninterrupted([&] { return ::fsync(file_.get()); }) != 0) system = errno;
    } else if (file_descriptor second(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0)); second) {
      system = second.close();  // some file systems say only at a close what they could not write
    }
    return done(system, bytes);
  }
  /// Gives the file, which has to be `bytes` long, its name, and closes it. After an error the name is what it was
  /// before, and the file stays open under its other one; or, if only the directory's own synchronisation failed, the
  /// complete file has its name. ESTALE as complete().
  result<void> publish(std::uint64_t bytes, bool synchronise) noexcept {
    int system = has_name(bytes) ? refusal() : ESTALE;
    if (system == 0) system = rename();
    if (system != 0) return done(system, bytes);
    temporary_[0] = '\0';
    file_.close();
    // some file systems cannot synchronise a directory: EINVAL
    if (synchronise && uninterrupted([&] { return ::fsync(directory_.get()); }) != 0 && errno != EINVAL) system = errno;
    directory_.close();
    return done(system, 0);
  }

  /// Closes it and leaves it under its other name.
  void leave() noexcept {
    temporary_[0] = '\0';
    file_.close();
    directory_.close();
  }
  /// Leaves nothing behind, unless it was published. A file that another process has put there is that one's.
  void discard() noexcept {
    if (temporary_[0] != '\0' && has_name()) ::unlinkat(directory_.get(), temporary_.data(), 0);
    temporary_[0] = '\0';
    file_.close();
    directory_.close();
  }

 private:
  atomic_file(std::string_view name, bool overwrite) noexcept : overwrite_(overwrite) {
    std::copy(name.begin(), name.end(), name_.begin());
  }

  /// Makes a change of ours, and keeps what the file's times say after it.
  template <class Change>
  result<void> change(std::uint64_t at, Change make) noexcept {
    (void)touched();
    const int system = make();
    left_ = stamp_of(file_.get());
    return done(system, at);
  }
  result<void> done(int system, std::uint64_t at) const noexcept {
    return system == 0 ? result<void>{} : file_failure(system, name(), at);
  }

  /// Whether its other name leads to it, and it is `bytes` long if that is stated.
  bool has_name(std::uint64_t bytes = ~std::uint64_t{0}) const noexcept {
    struct stat held{}, named{};
    if (::fstat(file_.get(), &held) != 0 ||
        ::fstatat(directory_.get(), temporary_.data(), &named, AT_SYMLINK_NOFOLLOW) != 0)
      return false;
    return held.st_dev == named.st_dev && held.st_ino == named.st_ino &&
           (bytes == ~std::uint64_t{0} || static_cast<std::uint64_t>(held.st_size) == bytes);
  }

  /// Why the name cannot be given to a file now: errno, or 0. Only a regular file that may be written is ever replaced:
  /// not a symbolic link (neither followed nor destroyed), a directory, a device.
  int refusal() const noexcept {
    struct stat there{};
    if (::fstatat(directory_.get(), name_.data(), &there, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT ? 0 : errno;
    if (S_ISLNK(there.st_mode)) return ELOOP;
    if (S_ISDIR(there.st_mode)) return EISDIR;
    if (!S_ISREG(there.st_mode)) return EINVAL;
    if (!overwrite_) return EEXIST;
    return (there.st_mode & 0222) == 0 ? EACCES : 0;
  }

  /// The permissions that it is to have.
  mode_t mode() const noexcept {
    struct stat there{};
    const bool replaces = ::fstatat(directory_.get(), name_.data(), &there, AT_SYMLINK_NOFOLLOW) == 0;
    return replaces ? there.st_mode & 0777 : mode_t{0644};
  }
  /// Gives it those of the file that it is to replace, which the umask, or an earlier program that began it, has not
  /// given it. 0, or errno.
  int copy_mode() const noexcept {
    struct stat there{}, held{};
    if (::fstatat(directory_.get(), name_.data(), &there, AT_SYMLINK_NOFOLLOW) != 0) return 0;
    if (::fstat(file_.get(), &held) != 0) return errno;
    const bool same = ((there.st_mode ^ held.st_mode) & 0777) == 0;
    return same || ::fchmod(file_.get(), there.st_mode & 0777) == 0 ? 0 : errno;
  }

  int open_temporary() noexcept {
    for (int attempt = 0; attempt < 16; ++attempt) {
      std::snprintf(temporary_.data(), temporary_.size(), ".%.200s.%ld.%016llx.part", name_.data(),
                    static_cast<long>(::getpid()), static_cast<unsigned long long>(system_entropy{}()));
      file_ = file_descriptor(uninterrupted([&] {
        return ::openat(directory_.get(), temporary_.data(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                        mode());
      }));
      if (file_) return copy_mode();
      if (errno != EEXIST) break;
    }
    temporary_[0] = '\0';
    return errno;
  }

  /// Only a file of our own: the owner of another file could change what we take for received.
  int open_partial() noexcept {
    int system = EAGAIN;
    std::snprintf(temporary_.data(), temporary_.size(), ".%.240s.part", name_.data());
    for (int attempt = 0; attempt < 16; ++attempt) {
      file_ = file_descriptor(uninterrupted([&] {
        return ::openat(directory_.get(), temporary_.data(),
                        O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, mode());
      }));
      struct stat opened{};
      if (!file_ || ::fstat(file_.get(), &opened) != 0) system = errno;
      else if (!S_ISREG(opened.st_mode) || opened.st_nlink > 1 || opened.st_uid != ::geteuid()) system = EACCES;
      else if (uninterrupted([&] { return ::flock(file_.get(), LOCK_EX | LOCK_NB); }) != 0) system = errno;
      // the program that had it may have given it its final name, or removed it, since it was opened
      else if (!has_name()) continue;
      else if (system = copy_mode(); system == 0) return 0;
      break;
    }
    temporary_[0] = '\0';
    file_.close();
    return system;
  }

  int rename() noexcept {
    const int d = directory_.get();
    if (overwrite_) return ::renameat(d, temporary_.data(), d, name_.data()) == 0 ? 0 : errno;
#ifdef RENAME_NOREPLACE
    if (::renameat2(d, temporary_.data(), d, name_.data(), RENAME_NOREPLACE) == 0) return 0;
    if (errno != EINVAL && errno != ENOSYS) return errno;
#endif
    if (::linkat(d, temporary_.data(), d, name_.data(), 0) != 0) return errno;
    ::unlinkat(d, temporary_.data(), 0);
    return 0;
  }

  file_descriptor directory_, file_;
  std::array<char, NAME_MAX + 1> name_{}, temporary_{};
  file_stamp left_{};  // after the last change of ours
  bool overwrite_, touched_ = false;
};

}  // namespace tensorpull::detail
