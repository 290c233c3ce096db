// Whether what takes long is tried whole: TENSORPULL_WHOLE_SCHEDULE=1, which `tests/run.sh --all` sets.
#pragma once

#include <cstdlib>

namespace test {

inline bool whole_schedule() {
  const char* const text = std::getenv("TENSORPULL_WHOLE_SCHEDULE");
  return text != nullptr && *text == '1';
}

}  // namespace test
