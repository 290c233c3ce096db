// A transport that names only its slot, used on: one error with g++; clang ends the class at the first failed
// assertion.
// EXPECT: tensorpull: a transport says how much one frame carries (requirement 2)
// WITHIN_LINES: 5
// MAX_ERRORS: 2
// MAX_LINES: 24
#include "model.hpp"

struct nothing {
  using is_transport_policy = void;
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, nothing>;

int main() {
  mlp mine{};
  auto owner = net::downloader::open({});
  auto ref = owner->add_tensors(mine);
  return net::download_tensors("127.0.0.1:1", *ref, mine) ? 0 : 1;
}
