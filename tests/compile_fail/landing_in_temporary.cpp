// A download into a model that is gone at once.
// EXPECT: error: 
// MAX_ERRORS: 2
// MAX_LINES: 40
#include <tensorpull/tensorpull.hpp>

struct mlp {
  float w[4][3], b[4];
};
BOOST_HANA_ADAPT_STRUCT(mlp, w, b);

using namespace tensorpull;
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, loopback>;

auto pull(net::downloader& owner) { return net::download_tensors(owner, ref_id{1, 2}, mlp{}); }
