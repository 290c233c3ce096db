// A host's handler that takes no messages.
// EXPECT: tensorpull: a host's handler is given messages: void message(auto& connection, const message&)
// WITHIN_LINES: 5
// MAX_ERRORS: 1
// MAX_LINES: 24
#include "model.hpp"

#include <tensorpull/transports/host/host.hpp>

struct handler {
  void connected(auto&) {}
  void pulled(auto&, const result<receipt>&) {}
  void closed(auto&, const error&) {}
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, tcp>;

void serve(event_loop& io, handler& h) { net::host<handler, no_consumer> host(io, h); }
