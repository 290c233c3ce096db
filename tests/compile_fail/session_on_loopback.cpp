// A session where there is no connection.
// EXPECT: tensorpull: this transport has no session
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback>;
auto session = net::session::connect("127.0.0.1:1");
