// Whether what takes long is tried whole: TENSORPULL_WHOLE_SCHEDULE=1, which `tests/run.sh --all` sets.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace test {

inline bool whole_schedule() {
  const char* const text = std::getenv("TENSORPULL_WHOLE_SCHEDULE");
  return text != nullptr && *text == '1';
}

/// Of so many repetitions those that are tried: all, or this part of them.
inline std::uint64_t repetitions(std::uint64_t all, std::uint64_t part = 4) {
  return whole_schedule() ? all : (all + part - 1) / part;
}

}  // namespace test
