// Systems that have no more: descriptors at either side, room in a listener's queue.
#include "network.hpp"
#include "support/clocks.hpp"
#include "support/few_descriptors.hpp"
#include "support/frames.hpp"
#include "support/sanitizers.hpp"

namespace tcp_descriptors_test {

using namespace test;
using net = raw_net<mlp, tp::tcp>;

/// A connection whose descriptor has a number that no limit below counts.
tp::posix_stream connected_aside(std::uint16_t port) {
  auto s = tp::tcp_connect(local(port), steady_clock::now() + 10s);
  EXPECT_TRUE(s);
  return tp::posix_stream(put_aside(s->release()));
}

struct counting {
  std::size_t connected_count = 0;
  std::vector<tp::error> closed_with;
  template <class C> void connected(C&) { ++connected_count; }
  template <class C> void message(C&, const tp::message&) {}
  template <class C> void pulled(C&, const tp::result<tp::receipt>&) {}
  template <class C> void closed(C&, const tp::error& e) { closed_with.push_back(e); }
};
using host_type = net::host<counting, tp::no_consumer>;

TEST(TcpDescriptors, Q2_AHostWithoutDescriptorsNeitherSpinsNorForgetsWhoWaits) {
  const std::size_t files = descriptors();
  {
    tp::event_loop io;
    counting handler;
    host_type host(io, handler);
    const auto port = *host.listen(any_port);
    std::vector<raw_peer> peers;
    tp::frame hello;  // a peer that says nothing would make room for the others
    hello.kind = tp::frame_kind::application;
    for (int i = 0; i < 12; ++i) {
      peers.emplace_back(connected_aside(port));
      ASSERT_TRUE(peers.back().say(encode(hello).bytes()));
    }
    const few_descriptors limit(5);
    const std::size_t turns = io.run_for(600ms);
    EXPECT_EQ(host.connections(), 5u);
    EXPECT_LT(turns, 60u) << "seven wait in the queue, and nothing can be done for them";
    for (std::size_t left = 0; left < 7; ++left) {
      peers[left].reset();
      for (int i = 0; i < 100 && handler.connected_count < 6 + left; ++i) io.run_for(100ms);
      ASSERT_EQ(handler.connected_count, 6 + left) << "a descriptor came back";
      EXPECT_EQ(host.connections(), 5u);
    }
    peers.clear();
    for (int i = 0; i < 100 && host.connections() > 0; ++i) io.run_for(100ms);
    EXPECT_EQ(handler.closed_with.size(), 12u) << "one report for each connection";
  }
  EXPECT_EQ(descriptors(), files);
}

TEST(TcpDescriptors, T2_SilentConnectionsBeyondTheLimitOnDescriptorsEndAndAGoodOneBehindThemIsServed) {
  const auto source = random_model<mlp>(1), mine = blank<mlp>();
  tp::host_options options;
  options.budgets.accept = 100ms;
  auto owner = net::downloader::open({.host = options});
  const auto ref = *owner->add_tensors(*source, {.recipients = 1});
  std::vector<raw_peer> silent;
  for (int i = 0; i < 200; ++i) silent.emplace_back(connected_aside(owner->port()));
  auto good = net::session::over(connected_aside(owner->port()));
  ASSERT_TRUE(good);
  ASSERT_TRUE(good->send(1, {}, {})) << "it is not silent, so it has time";
  {
    const few_descriptors limit(50);
    serving server(*owner);
    const auto done = good->download_tensors(ref, *mine, {.per_request_timeout = 100s});
    EXPECT_TRUE(succeeded(done));
    for (auto& s : silent) EXPECT_TRUE(s.hear_end());
  }
  EXPECT_TRUE(same(*mine, *source));
  EXPECT_TRUE(owner->settled(ref));
}

TEST(TcpDescriptors, Two_hosts_of_a_process_leave_each_other_descriptors_although_strangers_come_back_to_one_of_them) {
  tp::event_loop io;
  counting crowded, other;
  host_type first(io, crowded);
  const auto port = *first.listen(any_port);
  std::vector<raw_peer> strangers;
  for (int i = 0; i < 30; ++i) strangers.emplace_back(connected_aside(port));
  host_type second(io, other);  // its timer ends each interval after that of the first one
  raw_peer good(connected_aside(*second.listen(any_port)));
  tp::frame hello;
  hello.kind = tp::frame_kind::application;
  ASSERT_TRUE(good.say(encode(hello).bytes()));
  const few_descriptors limit(5);
  rlimit few{};
  ::getrlimit(RLIMIT_NOFILE, &few);
  for (int i = 0; i < 1500 && other.connected_count == 0; ++i) {
    io.run_for(10ms);
    for (raw_peer& stranger : strangers) {
      std::byte memory[256];
      const byte_span in(memory);
      tp::io_result io_now;
      do io_now = stranger.stream().read_some({&in, 1});
      while (io_now.bytes > 0);
      if (tp::is_end(io_now.status)) stranger = raw_peer(connected_aside(port));
    }
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  EXPECT_EQ(other.connected_count, 1u);
}

TEST(TcpDescriptors, Q2_WithoutDescriptorsConnectingListeningAndOpeningSayWhy) {
  const auto source = random_model<mlp>(1), mine = blank<mlp>();
  auto owner = net::downloader::open({});
  const auto ref = *owner->add_tensors(*source);
  const auto where = local(owner->port());
  tp::event_loop io;
  counting handler;
  host_type host(io, handler);
  const auto expect = [](const auto& r, errc code) {
    ASSERT_EQ(code_of(r), code);
    EXPECT_EQ(r.error().system, EMFILE);
  };
  {
    const fast_clock fast(20);
    const few_descriptors limit(0);
    expect(net::session::connect(where), errc::connection_failed);
    expect(net::download_tensors(where, ref, *mine), errc::connection_failed);
    expect(host.connect(where), errc::connection_failed);
    expect(host.listen(any_port), errc::connection_failed);
#ifndef TENSORPULL_TEST_ADDRESS_SANITIZER  // the sanitizer itself needs descriptors to look at Asio's exception
    expect(net::downloader::open({}), errc::io);
#endif
  }
  EXPECT_EQ(host.connections(), 0u);
  serving server(*owner);
  EXPECT_TRUE(net::download_tensors(where, ref, *mine)) << "descriptors are there again";
  EXPECT_TRUE(host.listen(any_port));
}

TEST(TcpDescriptors, T2_AListenerWhoseQueueIsFullTimesOut) {
  raw_listener listener(0);
  const auto where = local(listener.port());
  std::vector<tp::posix_stream> queued;
  for (bool full = false; !full && queued.size() < 16;) {
    auto s = tp::tcp_connect(where, steady_clock::now() + 200ms);  // the kernel answers itself
    if (s) queued.push_back(std::move(*s));
    else full = s.error() == errc::timed_out;
  }
  ASSERT_LT(queued.size(), 16u) << "this system has no queue that can be full";
  {  // an address that does not answer leaves the next one its share of the time
    raw_listener answers;
    sockaddr_in to[2]{};
    addrinfo list[2]{};
    for (int i = 0; i < 2; ++i) {
      to[i].sin_family = AF_INET;
      to[i].sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      to[i].sin_port = htons(i == 0 ? listener.port() : answers.port());
      list[i].ai_family = AF_INET;
      list[i].ai_socktype = SOCK_STREAM;
      list[i].ai_addr = reinterpret_cast<sockaddr*>(&to[i]);
      list[i].ai_addrlen = sizeof to[i];
    }
    list[0].ai_next = &list[1];
    EXPECT_TRUE(tp::detail::connect_any(list, "both", steady_clock::now() + 10s, {}));
    list[0].ai_next = nullptr;
    EXPECT_EQ(code_of(tp::detail::connect_any(list, "one", steady_clock::now() + 100ms, {})), errc::timed_out);
  }
  const auto mine = blank<mlp>();
  const auto start = steady_clock::now();
  EXPECT_EQ(code_of(net::session::connect(where, {.timeout = 200ms})), errc::timed_out);
  EXPECT_EQ(code_of(net::download_tensors(where, {{1, 2}, 0, 0}, *mine,
                                          {.per_request_timeout = 200ms, .retry = {.retries = 1, .first_delay = 1ms}})),
            errc::timed_out);
  stop_after stop(100ms);
  EXPECT_EQ(code_of(net::session::connect(where, {.timeout = 100s, .stop = stop.get_token()})), errc::cancelled);
  tp::event_loop io;
  counting handler;
  tp::host_options options;
  options.budgets.accept = 200ms;
  host_type host(io, handler, options);
  ASSERT_TRUE(host.connect(where));
  for (int i = 0; i < 300 && handler.closed_with.empty(); ++i) io.run_for(100ms);
  ASSERT_EQ(handler.closed_with.size(), 1u);
  EXPECT_EQ(handler.closed_with[0], errc::timed_out);
  EXPECT_EQ(handler.connected_count, 0u);
  EXPECT_LT(steady_clock::now() - start, 60s) << "the system itself gives up after two minutes";

  std::vector<raw_peer> accepted;
  for (std::size_t i = 0; i < queued.size(); ++i) accepted.push_back(listener.accept());
  EXPECT_TRUE(net::session::connect(where, {.timeout = 20s})) << "there is room again";
}

}  // namespace tcp_descriptors_test
