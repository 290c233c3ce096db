// The platform of a host, for the drivers that take one (pull/platform.hpp): the steady clock, the kernel's random
// numbers, and a line on standard error.
#pragma once

#include <tensorpull/std/chrono.hpp>
#include <tensorpull/system/entropy.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace tensorpull {

/// A platform. Its panic writes which contract is broken and ends the process with abort(), so that a debugger or a
/// core shows where.
struct host_platform {
  /// Nanoseconds of std::chrono::steady_clock.
  static std::chrono::nanoseconds now() noexcept { return std::chrono::steady_clock::now().time_since_epoch(); }
  /// As system_entropy.
  static std::uint64_t random() noexcept { return system_entropy{}(); }
  /// Does not return.
  [[noreturn]] static void panic(const char* what) noexcept {
    std::fprintf(stderr, "tensorpull: %s\n", what);
    std::abort();
  }
};

}  // namespace tensorpull
