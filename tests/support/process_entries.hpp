// What the process holds of the system, as the system tells it: descriptors, threads, memory. Of Linux.
#pragma once

#include <cstddef>
#include <dirent.h>
#include <fstream>
#include <string>
#include <string_view>
#include <unistd.h>

namespace test {

/// Open descriptors. Pipes are not among them: the library opens none, but a sanitizer that checks a pointer opens one for a moment, on whatever thread.
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

inline std::size_t threads() {
  std::size_t n = 0;
  DIR* const all = ::opendir("/proc/self/task");
  while (const dirent* const one = ::readdir(all)) n += one->d_name[0] != '.';
  ::closedir(all);
  return n;
}

/// Without those that have been joined, which the system lets go of a moment later.
inline std::size_t threads_at_rest() {
  for (std::size_t before = threads();;) {
    ::usleep(20'000);
    const std::size_t now = threads();
    if (now == before) return now;
    before = now;
  }
}

/// Bytes in memory, of all kinds. The counters in statm and status may lag by some pages for each processor; this walks the page tables.
inline std::size_t resident_bytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string word; rollup >> word;)
    if (std::size_t kib = 0; word == "Rss:" && rollup >> kib) return kib << 10;
  return 0;
}

}  // namespace test
