// A consumer without `begin`.
// EXPECT: tensorpull: a consumer is told what comes (requirement 3)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct sink : detail::null_consumer {
  void begin() = delete;
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback>;
bool pull(net::downloader& from, const reference& ref, sink& to) { return net::pull(from, ref, to).has_value(); }
