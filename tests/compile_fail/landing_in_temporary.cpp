// A download into a model that is gone at once.
// EXPECT: tensorpull: download_tensors was given a temporary
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback>;

auto pull(net::downloader& owner) { return net::download_tensors(owner, ref_id{1, 2}, mlp{}); }
