// A temporary that has to be destroyed.
// EXPECT: this one is not: give it a name that outlives the callback
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

#include <memory>

pull_options options(std::shared_ptr<int> count) {
  return {.progress = [count](const progress_event&) { ++*count; }};
}
