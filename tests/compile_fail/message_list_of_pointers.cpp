// A message struct whose list is of what cannot travel.
// EXPECT: tensorpull: a member of the message struct cannot travel
// MAX_ERRORS: 3
// MAX_LINES: 40
#include <tensorpull/tensorpull.hpp>

#include <tensorpull/messages/tensor_decomposer.hpp>

#include <optional>
#include <vector>

struct model {
  float w[4];
};
BOOST_HANA_ADAPT_STRUCT(model, w);
struct row {
  std::optional<const int*> where;
};
BOOST_HANA_ADAPT_STRUCT(row, where);
struct task {
  std::vector<row> rows;
};
BOOST_HANA_ADAPT_STRUCT(task, rows);

using net = tensorpull::pipeline<tensorpull::raw_tensors<model>, tensorpull::fixed_bytes<64>, tensorpull::loopback>;

int main() {
  task t{};
  return tensorpull::tensor_decomposer<net>::recompose({}, {}, t) ? 0 : 1;
}
