// What the process holds of the system, as the system tells it: descriptors, threads, memory. Of Linux.
#pragma once

#include "jobs/federated/process_stats.hpp"
#include "waiting.hpp"

#include <dirent.h>
#include <unistd.h>
#include <cstddef>
#include <string_view>

namespace test {

/// Open descriptors. Pipes are not among them: the library opens none, but a sanitizer that checks a pointer opens one
/// for a moment, on whatever thread.
inline std::size_t descriptors() {
  constexpr std::string_view pipe = "pipe:";
  std::size_t n = 0;
  DIR* const all = ::opendir("/proc/self/fd");
  while (const dirent* const one = ::readdir(all)) {
    char target[pipe.size()];
    const ssize_t length = ::readlinkat(::dirfd(all), one->d_name, target, sizeof target);
    n += length > 0 && std::string_view(target, static_cast<std::size_t>(length)) != pipe;
  }
  ::closedir(all);
  return n;
}

inline std::size_t threads() { return federated::stats_of_self()->threads; }

/// Without those that have been joined, which the system lets go of a moment later.
inline std::size_t threads_at_rest() {
  for (std::size_t before = threads();;) {
    be_slow(std::chrono::milliseconds(20));
    const std::size_t now = threads();
    if (now == before) return now;
    before = now;
  }
}

/// Bytes in memory, of all kinds.
inline std::size_t resident_bytes() { return federated::stats_of_self()->resident_bytes; }

}  // namespace test
