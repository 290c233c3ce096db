// Owns a descriptor.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <utility>

namespace tensorpull::detail {

/// Owns a descriptor. Movable; the destructor closes it.
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

  /// errno, or 0. The descriptor is gone in any case: Linux frees it even if close() was interrupted.
  int close() noexcept {
    if (fd_ < 0 || ::close(std::exchange(fd_, -1)) == 0 || errno == EINTR) return 0;
    return errno;
  }
  /// Gives up the descriptor, which is the caller's then.
  int release() noexcept { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace tensorpull::detail
