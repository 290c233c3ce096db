// A user's program that owns tensors over TCP.
#include "model.hpp"

#include <tensorpull/transports/host/owner.hpp>

using over_tcp = tensorpull::pipeline<tensorpull::raw_tensors<mlp>, tensorpull::fixed_bytes<256>, tensorpull::tcp>;

int main() {
  auto owner = over_tcp::downloader::open({.listen = "127.0.0.1:0"});
  return owner && owner->port() != 0 ? 0 : 1;
}
