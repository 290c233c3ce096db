// What the process holds of the system: descriptors and threads, counted where the system lists them. No allocation but the directory's own.
#pragma once

#include <cstddef>
#include <dirent.h>
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

}  // namespace test
