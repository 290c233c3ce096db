// A name with several addresses: a host tries one after the other, as a program that waits does. ":port" stands for ::1
// and 127.0.0.1, whatever the machine's list of names says.
#include "network.hpp"

#include <atomic>
#include <mutex>

namespace tcp_addresses_test {

using namespace test;
using net = raw_net<tiny, tp::tcp>;
using net_on_threads = raw_net<tiny, tp::tcp_on_threads>;

/// Counts what it is told, and pulls over each connection that is established.
struct puller {
  tp::reference ref{};
  tiny* to = nullptr;
  std::atomic<int> connects{0}, pulls{0}, closes{0};
  std::atomic<std::uint64_t> tags{0};
  std::mutex guards_end;
  tp::error end{};
  template <class C> void connected(C& c) {
    ++connects;
    tags += c.tag;
    if (to != nullptr) EXPECT_TRUE(c.pull(ref, {}, tp::raw_tensors<tiny>::destination(*to)));
    else c.close();
  }
  template <class C> void message(C&, const tp::message&) {}
  template <class C> void pulled(C& c, const tp::result<tp::receipt>& r) { pulls += r ? 1 : 0, c.close(); }
  template <class C> void closed(C& c, const tp::error& e) {
    tags += c.tag;
    const std::lock_guard hold(guards_end);
    end = e;
    ++closes;
  }
};

std::string both(std::uint16_t port) { return ":" + std::to_string(port); }

TEST(TcpAddresses, A_host_goes_on_to_the_address_where_somebody_listens) {
  const auto source = random_model<tiny>(1);
  for (const std::string where : {"127.0.0.1", "[::1]"}) {
    const own_port port;  // at both addresses
    auto owner = net::downloader::open({.listen = where + both(port)});
    if (!owner && where.front() == '[') continue;  // a machine without IPv6
    ASSERT_TRUE(owner);
    const auto ref = *owner->add_tensors(*source);
    serving thread(*owner);
    const auto mine = blank<tiny>();
    puller handler;
    handler.ref = ref, handler.to = mine.get();
    tp::event_loop io;
    net::host<puller, tp::land> host(io, handler);
    ASSERT_TRUE(host.connect(both(owner->port()), 7));
    for (int i = 0; i < 3000 && handler.closes == 0; ++i) io.run_one_for(10ms);
    EXPECT_EQ(handler.connects, 1) << where << ": " << tp::describe(handler.end).view();
    EXPECT_EQ(handler.pulls, 1);
    EXPECT_EQ(handler.closes, 1);
    EXPECT_EQ(handler.end, errc::cancelled) << "the handler closed it, and heard of no other end";
    EXPECT_EQ(handler.tags, 14u);
    EXPECT_TRUE(same(*mine, *source));
    EXPECT_EQ(host.connections(), 0u);
  }
}

TEST(TcpAddresses, A_host_is_told_once_that_nobody_listens_at_any_of_them) {
  const own_port nobody;
  puller handler;
  tp::event_loop io;
  net::host<puller, tp::land> host(io, handler);
  if (const auto ok = host.connect(both(nobody), 7)) {
    for (int i = 0; i < 3000 && handler.closes == 0; ++i) io.run_one_for(10ms);
    for (int i = 0; i < 10; ++i) io.run_one_for(10ms);
    EXPECT_EQ(handler.connects, 0);
    EXPECT_EQ(handler.closes, 1);
    EXPECT_EQ(handler.tags, 7u);
    EXPECT_EQ(handler.end, errc::connection_failed);
    EXPECT_EQ(handler.end.system, ECONNREFUSED);
  } else {  // a system that refuses at once
    EXPECT_EQ(code_of(ok), errc::connection_failed);
    EXPECT_EQ(ok.error().system, ECONNREFUSED);
    EXPECT_EQ(handler.closes, 0);
  }
  EXPECT_EQ(host.connections(), 0u);
}

TEST(TcpAddresses, Several_threads_connect_to_names_and_the_host_is_stopped_meanwhile) {
  const own_port somebody, nobody;
  raw_listener listener(4096, somebody);
  for (int round = 0; round < 20; ++round) {
    puller handler;
    tp::event_loop io;
    auto host = std::make_unique<net_on_threads::host<puller, tp::land>>(io, handler);
    int begun = 0;
    {
      const joined_threads threads(3, [&](std::size_t) { io.run(); });
      for (int i = 0; i < 30; ++i) begun += host->connect(both(i % 2 == 0 ? listener.port() : nobody)) ? 1 : 0;
      if (round % 2 == 0) {
        EXPECT_TRUE(eventually("all have connected or failed", [&] { return host->connections() == 0; }));
      }
      host->stop();
    }  // the event loop has no more work
    EXPECT_EQ(host->connections(), 0u);
    EXPECT_EQ(handler.closes, begun);
    EXPECT_TRUE(round % 2 != 0 || handler.connects == 15) << handler.connects;
  }
}

}  // namespace tcp_addresses_test
