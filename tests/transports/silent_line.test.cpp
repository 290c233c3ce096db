// A TCP line that carries nothing any more, while somebody waits for bytes.
#include "gone_line.hpp"
#include "network.hpp"

#include <atomic>
#include <cstring>
#include <vector>

namespace silent_line_test {

using namespace test;
using net = tp::pipeline<tp::raw_tensors<tiny>, tp::fixed_bytes<1_KiB>, tp::tcp>;

tp::io_result read(tp::posix_stream& from) {
  std::byte one{};
  const byte_span room(&one, 1);
  return from.read_some({&room, 1});
}

// A session waits for minutes between two pulls; its line was taken for gone at the first wait of the next one.
// With long packets a pull that said so later had half of the line: the kernel begins with room for one of them.
TEST(SilentLine, A_far_end_hears_how_much_may_come_before_it_is_asked_for_anything) {
  for (const bool far : {false, true}) {
    auto e = connected();
    const int before = option(e.left.native_handle(), SOL_SOCKET, SO_RCVBUF);
    told.emplace();
    told->tcpi_rtt = far ? 50'000 : 50;
    e.left.expect_bytes(true);
    told.reset();
    EXPECT_EQ(option(e.left.native_handle(), SOL_SOCKET, SO_RCVBUF) > before, far);
  }
}

TEST(SilentLine, Silence_before_bytes_are_due_does_not_count) {
  auto [left, right] = connected();
  pass_time(tp::detail::longest_silence + 1s);
  const gone_line gone;
  right.expect_bytes(true);
  EXPECT_FALSE(right.wait(true, false, 20ms).read);
  EXPECT_EQ(read(right).status, tp::io_status::would_block);
}

// An owner is silent for minutes, and is asked again then: a request that was on its way for a moment was taken for one
// that nobody acknowledges, if the program itself asks for signs of life, but seldom.
TEST(SilentLine, A_line_is_gone_if_what_was_sent_again_or_two_questions_are_not_answered_for_long) {
  const struct {
    tcp_info of;
    bool gone;
  } cases[]{{line(longest + 1, 0, 0), false}, {line(longest + 1, 0, 1), false}, {line(longest, 3, 0), false},
            {line(longest, 0, 3), false},     {line(longest + 1, 1, 0), true},  {line(longest + 1, 0, 2), true}};
  auto [left, right] = connected();
  for (const auto& c : cases) {
    told = c.of;
    EXPECT_EQ(tp::detail::line_is_gone(right.native_handle()), c.gone) << &c - cases;
    told.reset();
  }
  right.expect_bytes(true);
  pass_time(tp::detail::longest_silence + 1s);
  EXPECT_FALSE(right.wait(true, false, 1ms).read);
  {
    const gone_line gone;
    EXPECT_TRUE(right.wait(true, false, 1ms).read);
  }
  const auto io = read(right);
  EXPECT_EQ(io.status, tp::io_status::closed);
  EXPECT_EQ(io.system, ETIMEDOUT);
}

// An event loop does not wait in the stream: a line that was gone was not noticed.
TEST(SilentLine, A_read_that_finds_nothing_notices_it_without_a_wait) {
  auto [left, right] = connected();
  right.expect_bytes(true);
  pass_time(tp::detail::longest_silence + 1s);
  EXPECT_EQ(read(right).status, tp::io_status::would_block);
  const gone_line gone;
  EXPECT_EQ(read(left).status, tp::io_status::would_block) << "nothing is due there";
  const auto io = read(right);
  EXPECT_EQ(io.status, tp::io_status::closed);
  EXPECT_EQ(io.system, ETIMEDOUT);
}

/// Pulls from each client that dials in.
struct pulling {
  using host_type = net::host<pulling, tp::land>;
  tp::reference ref{{5, 6}, 0, 0};
  tp::pull_options options{};
  tiny mine{};
  int fd = -1;  ///< of the connection that is there
  std::vector<tp::result<tp::receipt>> outcomes;
  std::vector<tp::error> ends;
  tp::event_loop io;
  host_type host{io, *this, {.max_connections = 1}};

  template <class C> void connected(C& c) {
    c.trust();
    EXPECT_TRUE(c.pull(ref, options, tp::raw_tensors<tiny>::destination(mine)));
  }
  template <class C> void message(C&, const tp::message&) {}
  template <class C> void pulled(C&, const tp::result<tp::receipt>& r) { outcomes.push_back(r); }
  template <class C> void closed(C&, const tp::error& e) { ends.push_back(e); }

  template <class Done> bool turn_until(Done done) {
    const auto end = within(ample_time);
    while (!done() && !end.stop_requested()) io.run_one_for(20ms);
    return done();
  }
};
/// This process's end of a connection whose other end has that port.
int socket_to(std::uint16_t port) {
  for (int fd = 3; fd < 1024; ++fd)
    if (port_at_the_other_end(fd) == port) return fd;
  return -1;
}
std::uint16_t port_here(int fd) {
  sockaddr_in here{};
  socklen_t size = sizeof here;
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &size), 0);
  return ntohs(here.sin_port);
}

/// A client that dials in and is silent from then on.
struct silent_client {
  explicit silent_client(pulling& p, std::uint16_t to) : peer(to), port(port_here(peer.stream().native_handle())) {
    EXPECT_TRUE(p.turn_until([&] {
      if (fd < 0) fd = socket_to(port);
      return fd >= 0 && asks(fd);
    })) << "the kernel was not told to ask for a sign of life";
  }
  raw_peer peer;
  std::uint16_t port;
  int fd = -1;  ///< of the host
};

// Before this the connection kept its place until its budget was over.
TEST(SilentLine, A_host_that_pulls_gives_up_a_line_that_is_gone_and_its_place_to_the_client_that_dials_again) {
  pulling p;
  const auto port = p.host.listen(any_port);
  ASSERT_TRUE(port);
  const silent_client lost(p, *port);
  auto again = net::session::connect(local(*port));
  ASSERT_TRUE(again);
  const auto source = random_model<tiny>(1);
  ASSERT_TRUE(again->add_tensors(*source, {.recipients = 1, .id = p.ref.id}));
  const gone_line gone(lost.port);
  pass_time(tp::detail::longest_silence + 1s);
  std::atomic<bool> served = false;
  joined_thread client([&] {
    EXPECT_TRUE(again->serve(tp::until_settled(p.ref), ample_time));
    served = true;
  });
  EXPECT_TRUE(p.turn_until([&] { return served.load(); }));
  client.join();
  ASSERT_EQ(p.outcomes.size(), 2u);
  ASSERT_EQ(code_of(p.outcomes[0]), errc::connection_lost) << "a budget that ends says timed_out";
  EXPECT_EQ(p.outcomes[0].error().system, ETIMEDOUT);
  ASSERT_GE(p.ends.size(), 1u);
  EXPECT_EQ(p.ends[0].code, errc::connection_lost);
  EXPECT_TRUE(p.outcomes[1]);
}

TEST(SilentLine, A_host_that_pulls_waits_for_a_client_that_is_there_and_silent) {
  pulling p;
  p.options = {.per_request_timeout = tp::detail::longest_silence + 4s, .retry = {.retries = 0}};
  const auto port = p.host.listen(any_port);
  ASSERT_TRUE(port);
  const silent_client silent(p, *port);
  const int before = looks;
  pass_time(tp::detail::longest_silence + 1s);
  EXPECT_TRUE(p.turn_until([&] { return looks != before; })) << "nobody looks after the line";
  EXPECT_TRUE(p.outcomes.empty());
  pass_time(3s);
  EXPECT_TRUE(p.turn_until([&] { return !p.outcomes.empty(); }));
  ASSERT_EQ(p.outcomes.size(), 1u);
  EXPECT_EQ(code_of(p.outcomes[0]), errc::timed_out);
  EXPECT_TRUE(p.ends.empty());
  EXPECT_FALSE(asks(silent.fd)) << "nothing is due after the pull";
  EXPECT_EQ(option(silent.fd, SOL_SOCKET, SO_KEEPALIVE), 1) << "a firewall forgets a connection that is silent";
}

// The line is there, and says so if the kernel asks.
TEST(SilentLine, An_owner_that_is_silent_for_longer_than_a_line_may_be_is_waited_for) {
  raw_listener owner;
  const auto mine = blank<tiny>();
  const joined_thread passes([&] {
    raw_peer silent = owner.accept();
    const silence here(socket_to(owner.port()), 3s);
    (void)silent.hear_end();
  });
  const auto done = net::download_tensors(
      local(owner.port()), tp::reference{{5, 6}, 0, 0}, *mine,
      {.per_request_timeout = tp::detail::longest_silence + 4s, .retry = {.retries = 0}});
  EXPECT_EQ(code_of(done), errc::timed_out);
}

// A client that served waited until its kernel sent again, or for ever if nothing was under way.
TEST(SilentLine, A_client_that_serves_notices_that_the_line_to_its_recipient_is_gone) {
  raw_listener host;
  auto client = net::session::connect(local(host.port()));
  ASSERT_TRUE(client);
  const raw_peer silent = host.accept();
  const auto source = random_model<tiny>(1);
  const auto ref = client->add_tensors(*source, {.recipients = 1});
  ASSERT_TRUE(ref);
  const int fd = client->stream().native_handle();
  const auto serve = [&](std::chrono::milliseconds time, std::chrono::milliseconds more) {
    const silence here(fd, more);
    return client->serve(tp::until_settled(*ref), time);
  };
  const auto there = serve(tp::detail::longest_silence + 4s, 3s);
  EXPECT_EQ(code_of(there), errc::timed_out) << "the recipient is there and asks for nothing";
  EXPECT_FALSE(asks(fd)) << "nothing is due after the call";
  pass_time(tp::detail::short_pause + 1s);
  const gone_line gone(host.port());
  const auto lost = serve(60s, 0s);
  ASSERT_EQ(code_of(lost), errc::connection_lost);
  EXPECT_EQ(lost.error().system, ETIMEDOUT);
}

// A device waits for its next task for minutes. The line was gone, and receive() noticed nothing for ever.
TEST(SilentLine, A_session_that_waits_for_a_message_or_to_send_one_notices_that_the_line_is_gone) {
  raw_listener server;
  const auto lost = [&](auto call) {
    auto client = net::session::connect(local(server.port()));
    ASSERT_TRUE(client);
    const raw_peer silent = server.accept();
    const gone_line gone(server.port());
    const fast_clock fast(4);
    const auto how = call(*client);
    ASSERT_EQ(code_of(how), errc::connection_lost);
    EXPECT_EQ(how.error().system, ETIMEDOUT);
  };
  lost([](auto& client) { return client.receive(60s); });
  lost([](auto& client) {  // again and again, for a short time
    for (int i = 0;; ++i)
      if (auto got = client.receive(1s); code_of(got) != errc::timed_out || i == 60) return got;
  });
  lost([](auto& client) {
    const byte_vector longest(64 * 1024);
    for (;;)
      if (const auto sent = client.send(1, {}, longest, 60s); !sent) return sent;
  });
}

}  // namespace silent_line_test
