// A temporary that is too large to be kept.
// EXPECT: tensorpull: a temporary given as a callback is kept by copy if it is trivially copyable and at most three pointers large
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

pull_options options() {
  int a = 0, b = 0, c = 0, d = 0;
  return {.progress = [&a, &b, &c, &d](const progress_event&) { ++a, ++b, ++c, ++d; }};
}
