// A std::vector within a nested struct: its size is not known to the compiler. The diagnostic names the member.
// EXPECT: or use tensor_list, which takes views of any memory
// EXPECT: &encoder::hidden_weights
// MAX_ERRORS: 3
// MAX_LINES: 40
#include <tensorpull/tensorpull.hpp>

#include <vector>

struct encoder {
  float bias[4];
  std::vector<float> hidden_weights;
};
struct network {
  encoder layers[2];
  float scale;
};
BOOST_HANA_ADAPT_STRUCT(encoder, bias, hidden_weights);
BOOST_HANA_ADAPT_STRUCT(network, layers, scale);

using net = tensorpull::pipeline<tensorpull::raw_tensors<network>, tensorpull::whole, tensorpull::loopback>;

int main() {
  net::downloader owner;
  network model;
  return owner.add_tensors(model) ? 0 : 1;
}
