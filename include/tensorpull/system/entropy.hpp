// Unguessable random numbers from the operating system, for reference IDs and nonces. The state machines take any such
// source.
#pragma once

#include <cstdint>

#if defined(__linux__)
#include <sys/random.h>

#include <cerrno>
#else
#include <random>
#endif

namespace tensorpull {

/// A source of random numbers: each call gives 64 bits. On Linux they are the kernel's (getrandom): nobody can guess
/// them, and a call returns only when it has them, so it may wait while the system starts. Elsewhere they are as good
/// as std::random_device. If the system has none to give (ENOSYS: an old kernel, a filter of system calls), the program
/// ends.
struct system_entropy {
  std::uint64_t operator()() const noexcept {
    std::uint64_t value = 0;
#if defined(__linux__)
    // 8 bytes are never interrupted once the kernel's source is ready; before that, a signal may interrupt the wait
    while (::getrandom(&value, sizeof value, 0) != static_cast<ssize_t>(sizeof value))
      if (errno != EINTR) __builtin_trap();
#else
    std::random_device device;
    value = std::uint64_t{device()} << 32 | device();
#endif
    return value;
  }
};

}  // namespace tensorpull
