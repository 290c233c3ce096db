// A struct that was not adapted.
// One line more than five: a policy refuses its own arguments, so the pipeline that names it stands between.
// EXPECT: tensorpull: a model is a struct adapted with BOOST_HANA_ADAPT_STRUCT
// WITHIN_LINES: 6
// MAX_ERRORS: 3
// MAX_LINES: 24
#include <tensorpull/tensorpull.hpp>

struct mlp {
  float w[4][3], b[4];
};

using net = tensorpull::pipeline<tensorpull::raw_tensors<mlp>, tensorpull::whole, tensorpull::loopback>;

int main() {
  mlp mine;
  return net::download_tensors(*new net::downloader, tensorpull::ref_id{1, 2}, mine) ? 0 : 1;
}
