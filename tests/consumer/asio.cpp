// What the component asio gives: an owner within a program's own event loop.
#include "model.hpp"

#include <tensorpull/transports/asio/in_io_context.hpp>
#include <tensorpull/transports/host/owner.hpp>

using over_tcp = tensorpull::pipeline<tensorpull::raw_tensors<mlp>, tensorpull::fixed_bytes<256>, tensorpull::tcp>;

int main() {
  auto owner = over_tcp::downloader::open({.listen = "127.0.0.1:0"});
  if (!owner || owner->port() == 0) return 1;
  boost::asio::io_context io;
  const tensorpull::in_io_context serving(owner->event_loop(), io);
  return io.poll() == 0 ? 0 : 1;
}
