// Handlers of hosts, and owners that run.
#include "model.hpp"

#include <tensorpull/transports/host/host.hpp>
#include <tensorpull/transports/host/owner.hpp>

using net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, tcp>;

// CASE handler_with_a_consumer_without_commit
// EXPECT: tensorpull: a consumer takes bytes that arrived (requirement 5)
// WITHIN_LINES: 6
// MAX_LINES: 40
struct sink : detail::null_consumer {
  void commit() = delete;
};
struct handler {
  void connected(auto&) {}
  void message(auto&, const message&) {}
  void pulled(auto&, const result<receipt>&) {}
  void closed(auto&, const error&) {}
};
void serve(event_loop& io, handler& h) { net::host<handler, sink> host(io, h); }

// CASE handler_without_message
// EXPECT: tensorpull: a host's handler is given messages: void message(auto& connection, const message&)
struct handler {
  void connected(auto&) {}
  void pulled(auto&, const result<receipt>&) {}
  void closed(auto&, const error&) {}
};
void serve(event_loop& io, handler& h) { net::host<handler, no_consumer> host(io, h); }

// CASE run_of_a_reference
// EXPECT: tensorpull: serve(until_settled(ref)) or run(until_settled(ref)), not serve(ref) or run(ref)
// WITHIN_LINES: 8
void serve(net::downloader& owner, const reference& ref) { owner.run(ref); }

// CASE run_over_an_end_that_hears_nothing
// EXPECT: tensorpull: a connection's end needs `std::uint32_t heard() const`, `bool mid_frame() const` and
// WITHIN_LINES: 0
// MAX_ERRORS: 3
// MAX_LINES: 85
template <class Parts, class Owner, class Handler>
struct deaf_end : endpoint<typename Parts::framing, typename Parts::limits, Owner, Handler> {
  using endpoint<typename Parts::framing, typename Parts::limits, Owner, Handler>::endpoint;
  void heard() = delete;
};
struct odd : tcp {
  template <class Parts, class Owner, class Handler>
  using endpoint_type = deaf_end<Parts, Owner, Handler>;
};
using odd_net = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, odd>;
void serve(odd_net::downloader& owner, const reference& ref) { owner.run(until_settled(ref)); }
void open() { (void)odd_net::downloader::open(); }

// CASE owner_of_a_transport_that_cannot_listen
// EXPECT: tensorpull: this transport cannot have an owner: it needs `static result<L> listen(std::string_view address) noexcept`
// MAX_LINES: 30
struct mine : stream_transport<mine, posix_stream> {
  static result<posix_stream> connect(std::string_view, std::chrono::milliseconds, const stop_token&) noexcept {
    return failure(errc::connection_failed);
  }
};
auto owner = pipeline<raw_tensors<mlp>, fixed_bytes<1_KiB>, mine>::downloader::open({.listen = "here"});
