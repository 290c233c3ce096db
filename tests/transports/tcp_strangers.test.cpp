// A peer that has shown nothing to a host gets nothing that others need: no buffer, no time, and no place among its
// connections.
#include "network.hpp"
#include "support/clocks.hpp"
#include "support/frames.hpp"

#include <tensorpull/transports/over/tcp/tcp_listener.hpp>

namespace test {

/// A part of `mlp`.
struct mask_only {
  std::uint8_t mask[1000];
};

}  // namespace test

BOOST_HANA_ADAPT_STRUCT(test::mask_only, mask);

namespace tcp_strangers_test {

using namespace test;
using net = raw_net<mlp, tp::tcp>;

constexpr std::uint32_t hello = 1, news = 2;

/// Hears messages, and trusts every peer that says hello.
struct listening {
  int hellos = 0, heard = 0, closed_count = 0;
  errc why{};
  std::size_t body = 0;
  template <class C> void connected(C&) {}
  template <class C> void message(C& c, const tp::message& m) {
    if (m.kind == hello) ++hellos, c.trust();
    else ++heard, body = m.body.size();
  }
  template <class C> void pulled(C&, const tp::result<tp::receipt>&) {}
  template <class C> void closed(C&, const tp::error& e) { ++closed_count, why = e.code; }
};
using host_type = net::host<listening, tp::no_consumer>;

template <class Done>
bool turn_until(tp::event_loop& io, Done done, std::chrono::milliseconds patience = 10s) {
  const auto end = steady_clock::now() + patience;
  while (!done() && steady_clock::now() < end) io.run_one_for(5ms);
  return done();
}

frame long_message() {
  static const byte_vector body(60'000);
  tp::frame m;
  m.kind = tp::frame_kind::application;
  m.application = news;
  m.body = body;
  return encode(m);
}
frame short_hello() {
  tp::frame m;
  m.kind = tp::frame_kind::application;
  m.application = hello;
  return encode(m);
}

TEST(TcpStrangers, Eight_that_begin_a_long_message_take_no_buffer_of_an_owner) {
  using part = raw_net<mask_only, tp::tcp>;
  owner_at_work<net> o;
  const frame message = long_message();
  std::vector<raw_peer> strangers;
  for (int i = 0; i < 8; ++i) {
    strangers.emplace_back(o.owner->port());
    ASSERT_TRUE(strangers.back().say(message.bytes().first(600)));
  }
  for (raw_peer& s : strangers) EXPECT_TRUE(s.hear_end()) << "it is told to go";
  const std::array<std::string_view, 1> names{"mask"};
  const auto mine = blank<mask_only>();
  const auto done = part::download_tensors(local(o.owner->port()), o.ref, *mine,
                                           {.per_request_timeout = 5s, .tensors = names, .retry = {.retries = 0}});
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(std::memcmp(mine->mask, o.source->mask, sizeof mine->mask), 0);
}

TEST(TcpStrangers, Eight_that_begin_a_long_message_do_not_keep_a_host_from_hearing_others) {
  tp::event_loop io;
  listening handler;
  host_type host(io, handler);
  const auto port = *host.listen(any_port);
  const frame message = long_message();
  std::vector<raw_peer> strangers;
  for (int i = 0; i < 8; ++i) {
    strangers.emplace_back(port);
    ASSERT_TRUE(strangers.back().say(message.bytes().first(600)));
  }
  EXPECT_TRUE(turn_until(io, [&] { return handler.closed_count == 8; }));
  EXPECT_EQ(handler.why, errc::too_large);
  raw_peer known(port);
  ASSERT_TRUE(known.say(short_hello().bytes()));
  joined_thread talking([&] { EXPECT_TRUE(known.say(message.bytes())); });
  EXPECT_TRUE(turn_until(io, [&] { return handler.heard == 1; }));
  EXPECT_EQ(handler.body, 60'000u);
}

TEST(TcpStrangers, A_known_peer_that_never_ends_its_message_gives_the_buffer_back) {
  tp::event_loop io;
  listening handler;
  host_type host(io, handler, {.message_buffers = 1, .budgets = {.frame = 300ms}});
  const auto port = *host.listen(any_port);
  const frame message = long_message();
  raw_peer slow(port);
  const frame greeting = short_hello();
  byte_vector begun(greeting.bytes().begin(), greeting.bytes().end());
  begun.insert(begun.end(), message.bytes().begin(), message.bytes().begin() + 600);
  ASSERT_TRUE(slow.say(begun));  // in one piece: when the first part is heard, the second has the buffer
  ASSERT_TRUE(turn_until(io, [&] { return handler.hellos == 1; }));
  std::size_t said = 600;
  raw_peer other(port);
  ASSERT_TRUE(other.say(short_hello().bytes()));
  joined_thread talking([&] { (void)other.say(message.bytes()); });
  EXPECT_TRUE(turn_until(io, [&] {
    if (handler.closed_count == 0 && said < message.size() - 1) (void)slow.say(message.bytes().subspan(said++, 1));
    return handler.heard == 1;
  }));
  EXPECT_EQ(handler.closed_count, 1);
  EXPECT_EQ(handler.why, errc::timed_out);
}

TEST(TcpStrangers, A_silent_one_is_let_alone_at_a_full_table_if_nobody_waits) {
  auto owner = *net::downloader::open({.host = {.max_connections = 2}});
  serving server(owner);
  const std::size_t none = descriptors();
  raw_peer first(owner.port());
  EXPECT_TRUE(eventually("it is there", [&] { return descriptors() >= none + 2; }));
  pass_time(2s);  // longer than a silent connection is tolerated while others wait
  raw_peer second(owner.port());
  be_slow(600ms);  // the host looks twice a second
  EXPECT_FALSE(first.ended());
}

TEST(TcpStrangers, An_owner_that_takes_no_messages_has_no_buffer_for_long_ones_not_even_of_its_recipients) {
  owner_at_work<net> o;
  raw_peer recipient(o.owner->port());
  ASSERT_TRUE(recipient.say(request(tp::frame_kind::describe, 1, o.ref.id, 0, 0)));
  EXPECT_FALSE(recipient.hear(8).empty());
  (void)recipient.say(long_message().bytes().first(600));
  EXPECT_TRUE(recipient.hear_end());
}

TEST(TcpStrangers, Who_says_a_byte_or_guesses_a_reference_has_shown_nothing) {
  owner_at_work<net> o(net::downloader::open({.host = {.budgets = {.accept = 300ms}}}));
  raw_peer one(o.owner->port()), guesser(o.owner->port()), recipient(o.owner->port());
  const std::byte zero{};
  ASSERT_TRUE(one.say({&zero, 1}));
  ASSERT_TRUE(guesser.say(request(tp::frame_kind::describe, 1, {1, 2}, 0, 0)));
  ASSERT_TRUE(recipient.say(request(tp::frame_kind::describe, 1, o.ref.id, 0, 0)));
  EXPECT_TRUE(one.hear_end());
  EXPECT_TRUE(guesser.hear_end());
  (void)recipient.hear(4096, 1s);
  EXPECT_TRUE(recipient.say(request(tp::frame_kind::pull, 2, o.ref.id, 0, 64)));
  EXPECT_FALSE(recipient.hear(1).empty()) << "who asked for what is there may stay";
}

TEST(TcpStrangers, Refused_requests_do_not_keep_a_connection) {
  owner_at_work<net> o(net::downloader::open({.host = {.budgets = {.idle = 500ms}}}));
  raw_peer peer(o.owner->port());
  ASSERT_TRUE(peer.say(request(tp::frame_kind::describe, 1, o.ref.id, 0, 0)));
  bool ended = false;
  byte_vector piece(4096);
  for (std::uint32_t i = 2; i < 400 && !ended; ++i) {
    const bool said = peer.say(request(tp::frame_kind::describe, i, {1, 2}, 0, 0));
    ended = !said || read_some(peer.stream(), piece).status == tp::io_status::closed;
    be_slow(20ms);
  }
  EXPECT_TRUE(ended);
}

TEST(TcpStrangers, Silent_connections_make_room_for_a_recipient_where_a_host_is_full) {
  owner_at_work<net> o(net::downloader::open({.host = {.max_connections = 4, .budgets = {.accept = 600s}}}));
  std::vector<raw_peer> silent;
  for (int i = 0; i < 8; ++i) silent.emplace_back(o.owner->port());
  const auto mine = blank<mlp>();
  const fast_clock fast(5);
  const auto done = net::download_tensors(local(o.owner->port()), o.ref, *mine,
                                          {.per_request_timeout = 200s, .retry = {.retries = 0}});
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*mine, *o.source));
}

TEST(TcpStrangers, A_connection_that_a_host_began_may_hear_nothing_for_longer_than_the_accept_budget) {
  auto listener = *tp::tcp_listener::open(any_port);
  tp::event_loop io;
  listening handler;
  host_type host(io, handler, {.budgets = {.accept = 200ms}});
  ASSERT_TRUE(host.connect(local(listener.port())));
  joined_thread server([&] {
    auto session = *net::session::over(*listener.accept(5s));
    (void)session.receive(1s);  // nothing comes
    EXPECT_TRUE(session.send(news, {}, {}));
    (void)session.serve([](const auto&) { return false; }, 200ms);
  });
  EXPECT_TRUE(turn_until(io, [&] { return handler.heard == 1; }));
  server.join();
}

TEST(TcpStrangers, All_that_wait_for_a_buffer_have_it_one_after_the_other_and_not_with_the_next_tick) {
  const frame message = long_message(), greeting = short_hello();
  tp::event_loop io;
  listening handler;
  host_type host(io, handler, {.message_buffers = 1});
  const auto port = *host.listen(any_port);
  raw_peer first(port);
  ASSERT_TRUE(first.say(greeting.bytes()));
  ASSERT_TRUE(turn_until(io, [&] { return handler.hellos == 1; }));
  ASSERT_TRUE(first.say(message.bytes().first(600)));
  byte_vector both(greeting.bytes().begin(), greeting.bytes().end());
  both.insert(both.end(), message.bytes().begin(), message.bytes().end());
  for (int i = 0; i < 20; ++i) io.run_one_for(5ms);
  std::vector<raw_peer> others;
  for (int i = 0; i < 150; ++i) {
    others.emplace_back(port);
    ASSERT_TRUE(others.back().say(both));
  }
  ASSERT_TRUE(turn_until(io, [&] { return handler.hellos == 151; }));
  EXPECT_EQ(handler.heard, 0);
  ASSERT_TRUE(first.say(message.bytes().subspan(600)));
  EXPECT_TRUE(turn_until(io, [&] { return handler.heard == 151; })) << handler.heard << ": five a second";
}

}  // namespace tcp_strangers_test
