// Loopback, given an address where its downloader belongs.
// EXPECT: tensorpull: a transport pulls (requirement 7)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback>;
bool get(mlp& model, const reference& ref) { return net::download_tensors("127.0.0.1:1", ref, model).has_value(); }
