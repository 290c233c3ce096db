#include <tensorpull/tensorpull.hpp>

struct model {
  float weight[8], bias[2];
};
BOOST_HANA_ADAPT_STRUCT(model, weight, bias);

int main() {
  using net = tensorpull::pipeline<tensorpull::raw_tensors<model>, tensorpull::fixed_bytes<64>, tensorpull::loopback>;
  model theirs{}, mine{};
  theirs.bias[1] = 3;
  net::downloader owner;
  const auto ref = owner.add_tensors(theirs);
  return ref && net::download_tensors(owner, *ref, mine) && mine.bias[1] == 3 ? 0 : 1;
}
