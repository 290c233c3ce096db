// A consumer without `commit`, given to a tee.
// EXPECT: tensorpull: a consumer takes bytes that arrived (requirement 5)
// WITHIN_LINES: 8
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

#include <tensorpull/consumers/tee.hpp>

struct sink : detail::null_consumer {
  void commit() = delete;
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, tcp>;
bool pull(const reference& ref, land& first, sink& second) {
  tensorpull::tee both(first, second);
  return net::pull("there", ref, both).has_value();
}
