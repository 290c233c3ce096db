// A consumer without `fingerprint`.
// EXPECT: tensorpull: a consumer says what it takes (requirement 2)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

struct sink : detail::null_consumer {
  void fingerprint() = delete;
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback>;
bool pull(net::downloader& from, const reference& ref, sink& to) { return net::pull(from, ref, to).has_value(); }
