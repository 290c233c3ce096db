// A pipeline without a transport policy, used on.
// EXPECT: tensorpull: a pipeline needs a transport policy: add tcp or loopback
// WITHIN_LINES: 5
// MAX_ERRORS: 2
// MAX_LINES: 24
#include "model.hpp"

using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>>;

int main() {
  mlp mine;
  auto owner = net::downloader::open({});
  auto done = net::download_tensors("127.0.0.1:1", ref_id{1, 2}, mine);
  return done ? 0 : 1;
}
