// A temporary that has to be destroyed.
// EXPECT: this one is not: give it a name that outlives the callback
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include <memory>

#include <tensorpull/tensorpull.hpp>

struct mlp {
  float w[4][3], b[4];
};
BOOST_HANA_ADAPT_STRUCT(mlp, w, b);

using namespace tensorpull;

pull_options options(std::shared_ptr<int> count) {
  return {.progress = [count](const progress_event&) { ++*count; }};
}
