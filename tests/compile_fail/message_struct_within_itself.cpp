// A message struct whose list is of itself.
// EXPECT: tensorpull: a member of the message struct cannot travel
// MAX_ERRORS: 3
// MAX_LINES: 40
#include <tensorpull/tensorpull.hpp>

#include <tensorpull/messages/tensor_decomposer.hpp>

#include <vector>

struct model {
  float w[4];
};
BOOST_HANA_ADAPT_STRUCT(model, w);
struct task {
  int round;
  std::vector<task> parts;
};
BOOST_HANA_ADAPT_STRUCT(task, round, parts);

using net = tensorpull::pipeline<tensorpull::raw_tensors<model>, tensorpull::fixed_bytes<64>, tensorpull::loopback>;

int main() {
  net::downloader owner;
  task t{};
  return tensorpull::tensor_decomposer<net>::decompose(owner, t) ? 0 : 1;
}
