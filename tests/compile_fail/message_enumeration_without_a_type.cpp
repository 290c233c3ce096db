// An enumeration in a message struct whose numbers are not all values.
// EXPECT: tensorpull: a member of the message struct cannot travel
// MAX_ERRORS: 3
// MAX_LINES: 40
#include <tensorpull/tensorpull.hpp>

#include <tensorpull/messages/tensor_decomposer.hpp>

struct model {
  float w[4];
};
BOOST_HANA_ADAPT_STRUCT(model, w);
enum colour {
  red,
  green
};
struct task {
  int round;
  colour paint;
};
BOOST_HANA_ADAPT_STRUCT(task, round, paint);

using net = tensorpull::pipeline<tensorpull::raw_tensors<model>, tensorpull::fixed_bytes<64>, tensorpull::loopback>;

int main() {
  net::downloader owner;
  task t{};
  return tensorpull::tensor_decomposer<net>::decompose(owner, t) ? 0 : 1;
}
