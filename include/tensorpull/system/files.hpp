// Files. System calls are repeated if they were interrupted or did only a part of their work; errors are values, and no
// signal is raised. positioned_file is read at positions: a regular file, by any name that leads to one.
#pragma once

#include <tensorpull/core/checked.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/system/detail/file_descriptor.hpp>
#include <tensorpull/system/detail/held_signal.hpp>

#include <fcntl.h>
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
#include <limits>
#include <span>
#include <string_view>
#include <utility>

namespace tensorpull::detail {

inline unexpected file_failure(int system, error_name file, std::uint64_t at = 0) noexcept {
  return failure(system == ENOSPC || system == EDQUOT ? errc::disk_full : errc::io, at, file, system);
}

/// Renames a file within a folder unless there is one of the other name: 0, EEXIST or another errno. Some file systems
/// have links alone for that (NFS).
inline int rename_unless_taken(int folder, const char* from, const char* to) noexcept {
#ifdef RENAME_NOREPLACE
  if (::renameat2(folder, from, folder, to, RENAME_NOREPLACE) == 0) return 0;
  if (errno == EEXIST) return EEXIST;
#endif
  if (::linkat(folder, from, folder, to, 0) != 0) return errno;
  ::unlinkat(folder, from, 0);
  return 0;
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
  if (::fstat(fd, &there) != 0 || uninterrupted([&] { return ::fstatvfs(fd, &left); }) != 0 || left.f_blocks == 0 ||
      left.f_frsize == 0)
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
