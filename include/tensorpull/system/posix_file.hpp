// The system calls behind a file: repeated where they were interrupted or did half of it, with errors as values and no signal.
#pragma once

#include <tensorpull/core/result.hpp>

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

namespace tensorpull::detail {

inline unexpected file_failure(int system, error_name file, std::uint64_t at = 0) noexcept {
  return failure(system == ENOSPC || system == EDQUOT ? errc::disk_full : errc::io, at, file, system);
}

/// A write beyond RLIMIT_FSIZE raises SIGXFSZ, which ends the process by default. While this lives, the calling thread only sees EFBIG.
class no_file_size_signal {
 public:
  no_file_size_signal() noexcept {
    sigemptyset(&set_);
    sigaddset(&set_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
    was_pending_ = sigismember(&before_, SIGXFSZ) == 1 && pending();
  }
  no_file_size_signal(const no_file_size_signal&) = delete;
  no_file_size_signal& operator=(const no_file_size_signal&) = delete;
  ~no_file_size_signal() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  /// Takes back the signal that came with EFBIG. Keeps errno.
  void forget() noexcept {
    const int system = errno;
    int taken = 0;
    if (!was_pending_ && pending()) sigwait(&set_, &taken);
    errno = system;
  }

 private:
  static bool pending() noexcept {
    sigset_t now;
    sigemptyset(&now);
    sigpending(&now);
    return sigismember(&now, SIGXFSZ) == 1;
  }
  sigset_t set_, before_;
  bool was_pending_ = false;
};

/// Owns a descriptor.
class file_descriptor {
 public:
  file_descriptor() noexcept = default;
  explicit file_descriptor(int fd) noexcept : fd_(fd) {}
  file_descriptor(file_descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  file_descriptor& operator=(file_descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~file_descriptor() { close(); }

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

  /// errno, or 0. The descriptor is gone in any case: Linux frees it even where close() was interrupted.
  int close() noexcept {
    if (fd_ < 0 || ::close(std::exchange(fd_, -1)) == 0 || errno == EINTR) return 0;
    return errno;
  }

 private:
  int fd_ = -1;
};

/// Again while it is interrupted.
template <class Call>
auto uninterrupted(Call call) noexcept {
  decltype(call()) n;
  do n = call();
  while (n < 0 && errno == EINTR);
  return n;
}

/// All of the bytes at `at`. 0, or errno.
inline int write_all(int fd, std::uint64_t at, std::span<const std::byte> bytes) noexcept {
  if (at > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max()) - bytes.size()) return EFBIG;
  no_file_size_signal quiet;
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

/// All of the bytes at `at`. 0, or errno; EIO where the file ends before.
inline int read_all(int fd, std::uint64_t at, std::span<std::byte> out) noexcept {
  if (at > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max()) - out.size()) return EINVAL;
  while (!out.empty()) {
    const ssize_t n = uninterrupted([&] { return ::pread(fd, out.data(), out.size(), static_cast<off_t>(at)); });
    if (n <= 0) return n == 0 ? EIO : errno;
    at += static_cast<std::uint64_t>(n);
    out = out.subspan(static_cast<std::size_t>(n));
  }
  return 0;
}

/// Makes the file `bytes` long with all its blocks reserved, where the file system can; its first bytes stay, or all are zero. 0, or errno.
inline int reserve(int fd, std::uint64_t bytes, bool keep = false) noexcept {
  if (bytes > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) return EFBIG;
  no_file_size_signal quiet;
  const auto length = static_cast<off_t>(bytes);
  // what was there before, and what a longer file would leave behind the end, goes first
  int system = uninterrupted([&] { return ::ftruncate(fd, keep ? length : 0); }) == 0 ? 0 : errno;
#ifdef __linux__
  // not posix_fallocate: where the file system cannot, glibc would write to every block instead
  if (system == 0 && length > 0) system = uninterrupted([&] { return ::fallocate(fd, 0, 0, length); }) == 0 ? 0 : errno;
#else
  if (system == 0 && length > 0) do system = ::posix_fallocate(fd, 0, length);
    while (system == EINTR);
#endif
  if (system == EFBIG) quiet.forget();
  return system == EOPNOTSUPP || system == EINVAL || system == ENOSYS ? 0 : system;
}

}  // namespace tensorpull::detail
