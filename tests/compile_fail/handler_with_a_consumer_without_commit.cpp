// A consumer without `commit`, which a host is to pull into.
// EXPECT: tensorpull: a consumer takes bytes that arrived (requirement 5)
// WITHIN_LINES: 6
// MAX_ERRORS: 1
// MAX_LINES: 40
#include "model.hpp"

#include <tensorpull/transports/host/host.hpp>

struct sink : detail::null_consumer {
  void commit() = delete;
};
struct handler {
  void connected(auto&) {}
  void message(auto&, const message&) {}
  void pulled(auto&, const result<receipt>&) {}
  void closed(auto&, const error&) {}
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, tcp>;
void serve(event_loop& io, handler& h) { net::host<handler, sink> host(io, h); }
