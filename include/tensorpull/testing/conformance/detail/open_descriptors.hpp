// How many descriptors the process has open, for checks of what a destructor gives back.
#pragma once

#include <dirent.h>

namespace tensorpull::testing::detail {

/// -1: the system does not say (there is no /proc/self/fd).
inline int open_descriptors() noexcept {
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return -1;
  int n = 0;
  while (::readdir(folder) != nullptr) ++n;
  ::closedir(folder);
  return n;
}

}  // namespace tensorpull::testing::detail
