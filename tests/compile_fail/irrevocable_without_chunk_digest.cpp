// An average without a check of each chunk.
// EXPECT: tensorpull: this consumer cannot undo what it has taken, so the pipeline needs an integrity policy that checks each chunk
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

#include <tensorpull/consumers/average/weighted_average.hpp>

using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback>;

result<receipt> pull(net::downloader& owner, weighted_average<>::update& to) {
  return net::pull(owner, reference{{1, 2}, 0, 0}, to);
}
