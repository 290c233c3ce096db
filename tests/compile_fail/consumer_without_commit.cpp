// A consumer without `commit`.
// EXPECT: tensorpull: a consumer takes bytes that arrived (requirement 5)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct sink : detail::null_consumer {
  void commit() = delete;
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback>;
bool pull(net::downloader& from, const reference& ref, sink& to) { return net::pull(from, ref, to).has_value(); }
