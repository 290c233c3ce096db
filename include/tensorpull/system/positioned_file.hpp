// A file that is read at positions. Decides what may be opened: regular files, by any name that leads to one. For hosts.
#pragma once

#include <tensorpull/system/posix_file.hpp>
#include <tensorpull/core/checked.hpp>

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <climits>
#include <string_view>

namespace tensorpull {

/// One descriptor, open for reading; no heap, no mapping, no position: reads from several threads do not disturb each other.
/// It stays the file that was opened, whatever happens to its name. Its bytes are the file system's: who changes them is seen.
class positioned_file {
 public:
  /// Symbolic links are followed, as everywhere when reading (caches of models consist of them). What is no regular file in the end
  /// is refused without waiting for it or reading from it.
  /// Errors, with the file's name without its directory: io with errno (ENOENT, EACCES, ...; EISDIR; EINVAL: a pipe, a socket, a device;
  /// ENAMETOOLONG), invalid_argument (an empty path, or one with a NUL in it).
  [[nodiscard]] static result<positioned_file> open(std::string_view path) noexcept {
    const std::string_view name = path.substr(path.find_last_of('/') + 1);
    if (path.empty() || path.find('\0') != path.npos) return failure(errc::invalid_argument, 0, name);
    std::array<char, PATH_MAX> text{};
    if (path.size() >= text.size()) return detail::file_failure(ENAMETOOLONG, name);
    std::copy(path.begin(), path.end(), text.begin());
    // O_NONBLOCK: a pipe without a writer must not hold us up before it is refused. It means nothing for a regular file.
    detail::file_descriptor fd(detail::uninterrupted([&] { return ::open(text.data(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); }));
    struct stat about {};
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

  /// Reads the file's bytes [offset, offset + out.size()), all of them. Errors: io, with errno, or without where the file ends before
  /// (it was longer once, or the range was never in it); `at` is the first byte that could not be read. `out` is then unspecified.
  [[nodiscard]] result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const noexcept {
    if (!range_within(offset, out.size(), static_cast<std::uint64_t>(std::numeric_limits<off_t>::max()))) return failure(errc::io, offset, name_);
    while (!out.empty()) {
      const ssize_t n = detail::uninterrupted([&] { return ::pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(offset)); });
      if (n < 0) return detail::file_failure(errno, name_, offset);
      if (n == 0) return failure(errc::io, offset, name_);
      offset += static_cast<std::uint64_t>(n);
      out = out.subspan(static_cast<std::size_t>(n));
    }
    return {};
  }

 private:
  positioned_file(detail::file_descriptor fd, std::uint64_t size, error_name name) noexcept : fd_(std::move(fd)), size_(size), name_(name) {}

  detail::file_descriptor fd_;
  std::uint64_t size_;
  error_name name_;
};

}  // namespace tensorpull
