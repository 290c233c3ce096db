// A view of a model over a transport that shares no memory.
// EXPECT: tensorpull: this transport has no views, since it shares no memory between programs
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 14
#include <tensorpull/tensorpull.hpp>

struct mlp {
  float w[4][3], b[4];
};
BOOST_HANA_ADAPT_STRUCT(mlp, w, b);

using namespace tensorpull;

using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, tcp>;
bool look(const reference& ref) { return net::view("127.0.0.1:1", ref).has_value(); }
