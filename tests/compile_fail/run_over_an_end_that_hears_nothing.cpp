// A transport whose connections speak something of their own, through an end that a host cannot judge.
// EXPECT: tensorpull: a connection's end needs `std::uint32_t heard() const`, `bool mid_frame() const` and
// MAX_LINES: 85
#include "model.hpp"

#include <tensorpull/transports/host/owner.hpp>

template <class Parts, class Owner, class Handler>
struct deaf_end : endpoint<typename Parts::framing, typename Parts::limits, Owner, Handler> {
  using endpoint<typename Parts::framing, typename Parts::limits, Owner, Handler>::endpoint;
  void heard() = delete;
};
struct odd : tcp {
  template <class Parts, class Owner, class Handler>
  using endpoint_type = deaf_end<Parts, Owner, Handler>;
};
using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, odd>;
void serve(net::downloader& owner, const reference& ref) { owner.run(until_settled(ref)); }
void open() { (void)net::downloader::open(); }
