// A message struct without BOOST_HANA_ADAPT_STRUCT.
// EXPECT: tensorpull: a message is a struct adapted with BOOST_HANA_ADAPT_STRUCT
// MAX_ERRORS: 3
// MAX_LINES: 40
#include <tensorpull/tensorpull.hpp>

#include <tensorpull/messages/tensor_decomposer.hpp>

struct model {
  float w[4];
};
BOOST_HANA_ADAPT_STRUCT(model, w);
struct task {
  int round;
};

using net = tensorpull::pipeline<tensorpull::raw_tensors<model>, tensorpull::fixed_bytes<64>, tensorpull::loopback>;

int main() {
  task t{};
  return tensorpull::tensor_decomposer<net>::recompose({}, {}, t) ? 0 : 1;
}
