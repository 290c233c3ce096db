// A stream of a program's own in the event-driven host: one that shakes hands before its first byte, and that may want
// another direction than the endpoint does.
#include "network.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

namespace own_stream_test {

using namespace test;

/// Each end says one byte and hears one; then it is the socket that it has.
class greeting_stream {
 public:
  explicit greeting_stream(tp::posix_stream s) noexcept : socket_(std::move(s)) {}

  int native_handle() const noexcept { return socket_.native_handle(); }
  tp::io_result read_some(std::span<const byte_span> to) noexcept { return socket_.read_some(to); }
  tp::io_result write_some(std::span<const const_byte_span> from) noexcept { return socket_.write_some(from); }
  tp::io_ready wait(bool read, bool write, std::chrono::milliseconds time) noexcept {
    return socket_.wait(read, write, time);
  }

  tp::establishment establish() noexcept {
    if (const auto under = socket_.establish(); under.status != tp::io_status::ok) return under;
    std::byte hello{42};
    if (!said_) {
      const auto io = test::write_some(socket_, std::span(&hello, 1));
      if (io.status != tp::io_status::ok) return {io.status, io.system, {false, true}};
      said_ = true;
    }
    if (!heard_) {
      const auto io = test::read_some(socket_, std::span(&hello, 1));
      if (io.status != tp::io_status::ok) return {io.status, io.system, {true, false}};
      heard_ = true;
    }
    return {};
  }
  /// More than has to be: what is ready too early does no harm.
  tp::io_ready interest(tp::io_ready wanted) const noexcept { return {wanted.read || wanted.write, wanted.write}; }

 private:
  tp::posix_stream socket_;
  bool said_ = false, heard_ = false;
};
static_assert(tp::pollable_stream<greeting_stream>);

class greeting_listener {
 public:
  explicit greeting_listener(tp::tcp_listener l) noexcept : listener_(std::move(l)) {}
  int native_handle() const noexcept { return listener_.native_handle(); }
  std::uint16_t port() const noexcept { return listener_.port(); }
  tp::result<greeting_stream> accept() noexcept {
    auto s = listener_.accept();
    if (!s) return tp::failure(s.error());
    return greeting_stream(std::move(*s));
  }

 private:
  tp::tcp_listener listener_;
};

/// "host:port", or several with commas in between.
class greeting_places {
 public:
  explicit greeting_places(std::string_view text) : rest_(text) {}
  bool more() const noexcept { return !rest_.empty(); }
  tp::result<greeting_stream> start_connect() noexcept {
    const std::string one = rest_.substr(0, rest_.find(','));
    rest_.erase(0, one.size() + 1);
    auto addresses = tp::tcp_addresses::of(one);
    if (!addresses) return tp::failure(addresses.error());
    auto s = addresses->start_connect();
    if (!s) return tp::failure(s.error());
    return greeting_stream(std::move(*s));
  }

 private:
  std::string rest_;
};

struct greeting : tp::stream_transport<greeting, greeting_stream> {
  static constexpr std::string_view any_address = any_port;
  static tp::result<greeting_stream> connect(std::string_view address, std::chrono::milliseconds,
                                             const tp::stop_token&) noexcept {
    auto connected = tp::tcp_connect(address, steady_clock::now() + 10s);
    if (!connected) return tp::failure(connected.error());
    return greeting_stream(std::move(*connected));  // the handshake is left to establish()
  }
  static tp::result<greeting_places> resolve(std::string_view address) noexcept { return greeting_places(address); }
  static tp::result<greeting_listener> listen(std::string_view address) noexcept {
    auto l = tp::tcp_listener::open(address);
    if (!l) return tp::failure(l.error());
    return greeting_listener(std::move(*l));
  }
};
static_assert(tp::transport<greeting> && tp::listening_transport<greeting>);
using net = raw_net<large, greeting>;
static_assert(tp::transport_for<greeting, net::parts> &&
              tp::pulls_from<greeting, net::parts, std::string_view, tp::land>);

TEST(OwnStream, An_owner_of_many_connections_shakes_hands_with_each_and_drops_whoever_does_not) {
  const auto source = random_model<large>(1);
  tp::owner_options options;
  options.host.budgets.accept = 500ms;
  auto owner = net::downloader::open(options);
  ASSERT_TRUE(owner);
  const auto ref = *owner->add_tensors(*source);
  serving thread(*owner);
  raw_peer silent(owner->port());
  on_threads(3, [&](std::size_t) { EXPECT_TRUE(arrives<net>(local(owner->port()), ref, *source)); });
  EXPECT_TRUE(silent.hear_end());
}

/// An address of the program's own.
struct greeting_address {
  std::string_view text;
  tp::result<greeting_stream> connect(std::chrono::milliseconds timeout, const tp::stop_token& stop) const noexcept {
    return greeting::connect(text, timeout, stop);
  }
};

TEST(OwnStream, Pulls_and_sessions_shake_hands_before_their_first_byte) {
  const auto source = random_model<large>(1);
  auto owner = net::downloader::open();
  ASSERT_TRUE(owner);
  const auto ref = owner->add_tensors(*source, {.recipients = 4});
  ASSERT_TRUE(ref);
  joined_thread serving([&](std::stop_token stop) { owner->run(tp::until_settled(*ref), stop); });
  const std::string at = local(owner->port());
  const tp::pull_options options{.per_request_timeout = 10s};
  for (const bool as_text : {true, false}) {
    auto mine = blank<large>();
    const auto done = as_text ? net::download_tensors(at, *ref, *mine, options)
                              : net::download_tensors(greeting_address{at}, *ref, *mine, options);
    ASSERT_TRUE(succeeded(done));
    EXPECT_TRUE(same(*mine, *source));
    auto session = as_text ? net::session::connect(at) : net::session::connect(greeting_address{at});
    ASSERT_TRUE(succeeded(session));
    mine = blank<large>();
    const auto again = session->download_tensors(*ref, *mine, options);
    ASSERT_TRUE(succeeded(again));
    EXPECT_TRUE(same(*mine, *source));
  }
}

TEST(OwnStream, A_handshake_that_nobody_answers_is_a_time_out_that_a_stop_can_end) {
  auto silent = tp::tcp_listener::open(any_port);
  ASSERT_TRUE(silent);
  auto mine = blank<large>();
  const auto done = net::download_tensors(local(silent->port()), tp::ref_id{1, 2}, *mine,
                                          {.per_request_timeout = 100ms, .retry = {.retries = 0}});
  EXPECT_EQ(code_of(done), errc::timed_out);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(code_of(net::session::connect(local(silent->port()), {.timeout = 1h, .stop = stop.get_token()})),
            errc::cancelled);
}

TEST(OwnStream, A_host_connects_and_pulls_over_it_and_hears_that_nobody_listens) {
  owner_at_work<net, large> o;
  const auto mine = blank<large>();
  puller<large> handler{o.ref, mine.get()};
  tp::event_loop io;
  net::host<puller<large>, tp::land> host(io, handler);
  ASSERT_TRUE(host.connect(local(o.owner->port())));
  for (int i = 0; i < 3000 && !handler.end; ++i) io.run_one_for(10ms);
  ASSERT_TRUE(handler.outcome && *handler.outcome);
  EXPECT_TRUE(same(*mine, *o.source));
  EXPECT_EQ(handler.connected_calls, 1);

  const own_port nobody;
  handler.end.reset();
  if (host.connect(local(nobody)))
    for (int i = 0; i < 3000 && !handler.end; ++i) io.run_one_for(10ms);
  ASSERT_TRUE(handler.end);
  EXPECT_EQ(*handler.end, errc::connection_failed);
  EXPECT_EQ(handler.connected_calls, 1);
}

TEST(OwnStream, Who_does_not_shake_hands_in_time_gives_way_to_the_next_place_unless_the_host_stops) {
  owner_at_work<net, large> o;
  raw_listener silent;
  const own_port nobody;
  const std::string places = local(nobody) + ",no address," + local(silent.port()) + "," + local(o.owner->port());
  const auto mine = blank<large>();
  for (const bool stops : {true, false}) {
    puller<large> handler{o.ref, mine.get()};
    tp::event_loop io;
    net::host<puller<large>, tp::land> host(io, handler, {.budgets = {.accept = stops ? 60'000ms : 300ms}});
    ASSERT_TRUE(host.connect(places));
    if (stops) {
      pollfd reached{silent.native_handle(), POLLIN, 0};
      for (int i = 0; i < 3000 && ::poll(&reached, 1, 0) == 0; ++i) io.run_one_for(10ms);
      host.stop();
      io.run();
    } else
      for (int i = 0; i < 3000 && !handler.end; ++i) io.run_one_for(10ms);
    ASSERT_TRUE(handler.end);
    EXPECT_EQ(*handler.end, errc::cancelled) << "closed by the handler, or by stop()";
    EXPECT_EQ(handler.connected_calls, stops ? 0 : 1);
    EXPECT_EQ(handler.outcome.has_value(), !stops);
    EXPECT_EQ(host.connections(), 0u);
  }
  EXPECT_TRUE(same(*mine, *o.source));
}

TEST(OwnStream, A_host_listens_once_and_takes_nothing_after_its_stop) {
  using tcp_net = raw_net<large, tp::tcp>;
  puller<large> handler{{}, nullptr};
  tp::event_loop io;
  tcp_net::host<puller<large>, tp::land> host(io, handler);
  ASSERT_TRUE(host.listen(any_port));
  const auto again = host.listen(any_port);
  ASSERT_EQ(code_of(again), errc::invalid_argument);
  EXPECT_EQ(again.error().system, 0);
  host.stop();
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  tp::posix_stream mine(ends[0]), other(ends[1]);
  EXPECT_EQ(code_of(host.adopt(std::move(mine))), errc::cancelled);
  EXPECT_EQ(mine.native_handle(), ends[0]) << "the stream is still the caller's";
  io.run();
  EXPECT_EQ(host.connections(), 0u);
  EXPECT_EQ(code_of(host.listen(any_port)), errc::cancelled);
}

/// A transport over threads whose listener takes a while to be moved: the host's timer looks at it meanwhile.
struct slow_listener {
  tp::tcp_listener inner;
  explicit slow_listener(tp::tcp_listener l) noexcept : inner(std::move(l)) {}
  slow_listener(slow_listener&& other) noexcept : inner((be_slow(500ms), std::move(other.inner))) {}
  slow_listener& operator=(slow_listener&&) noexcept = default;
  tp::result<tp::posix_stream> accept() noexcept { return inner.accept(); }
  int native_handle() const noexcept { return inner.native_handle(); }
};
struct slow_to_listen : tp::stream_transport<slow_to_listen, tp::posix_stream, true> {
  static tp::result<tp::posix_stream> connect(std::string_view address, std::chrono::milliseconds timeout,
                                              const tp::stop_token& stop) noexcept {
    return tp::tcp::connect(address, timeout, stop);
  }
  static tp::result<slow_listener> listen(std::string_view address) noexcept {
    auto made = tp::tcp_listener::open(address);
    if (!made) return tp::failure(made.error());
    return slow_listener(std::move(*made));
  }
};
TEST(OwnStream, A_host_on_threads_is_not_looked_at_before_it_listens) {
  using slow_net = raw_net<large, slow_to_listen>;
  puller<large> handler{{}, nullptr};
  tp::event_loop io;
  slow_net::host<puller<large>, tp::land> host(io, handler);
  joined_thread runs([&] { io.run(); });
  EXPECT_TRUE(host.listen(any_port));
  host.stop();
}

TEST(OwnStream, An_owner_refuses_a_stream_that_has_no_descriptor_or_one_that_cannot_be_waited_for) {
  auto owner = raw_net<large, tp::tcp>::downloader::open();
  ASSERT_TRUE(owner);
  tp::posix_stream closed, file(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const int fd = file.native_handle();
  const auto none = owner->adopt(std::move(closed)), other = owner->adopt(std::move(file));
  ASSERT_EQ(code_of(none), errc::io);
  EXPECT_EQ(none.error().system, EBADF);
  ASSERT_EQ(code_of(other), errc::io);
  EXPECT_EQ(other.error().system, EPERM);
  EXPECT_EQ(file.native_handle(), fd) << "the stream is still the caller's";
  EXPECT_EQ(owner->connections(), 0u);
}

TEST(OwnStream, An_owner_serves_a_connection_that_the_program_has_made) {
  const auto source = random_model<large>(3);
  using tcp_net = raw_net<large, tp::tcp>;
  auto owner = tcp_net::downloader::open();
  ASSERT_TRUE(owner);
  const auto ref = *owner->add_tensors(*source, {.recipients = 1});
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  ASSERT_TRUE(owner->adopt(tp::posix_stream(ends[0])));
  serving thread(*owner);
  tp::posix_stream mine_end(ends[1]);
  const auto mine = blank<large>();
  tp::land to(tp::raw_tensors<large>::destination(*mine));
  const auto done = tp::pull_over<tcp_net::parts>(mine_end, ref, to);
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*mine, *source));
}

}  // namespace own_stream_test
