// A download into a model that is gone at once.
// EXPECT: tensorpull: download_tensors was given a temporary
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include <tensorpull/tensorpull.hpp>

struct mlp {
  float w[4][3], b[4];
};
BOOST_HANA_ADAPT_STRUCT(mlp, w, b);

using namespace tensorpull;
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback>;

auto pull(net::downloader& owner) { return net::download_tensors(owner, ref_id{1, 2}, mlp{}); }
