// A member that is no tensor.
// One line more than five: a policy refuses its own arguments, so the pipeline that names it stands between.
// EXPECT: tensorpull: a member of the model is neither a scalar, an array of scalars nor an adapted struct
// WITHIN_LINES: 6
// MAX_ERRORS: 3
// MAX_LINES: 24
#include <tensorpull/tensorpull.hpp>

#include <string>

struct labelled {
  float w[4];
  std::string label;
};
BOOST_HANA_ADAPT_STRUCT(labelled, w, label);

using net = tensorpull::pipeline<tensorpull::raw_tensors<labelled>, tensorpull::whole, tensorpull::loopback>;

int main() {
  net::downloader owner;
  labelled model;
  return owner.add_tensors(model) ? 0 : 1;
}
