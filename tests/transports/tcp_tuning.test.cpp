// Send buffers: bounded between two ends on one machine, the kernel's own business between two machines.
#include "network.hpp"
#include "support/clocks.hpp"

#include <tensorpull/transports/over/tcp/tcp_listener.hpp>

#include <arpa/inet.h>

namespace tcp_tuning_test {

using namespace test;

int send_buffer(const tp::posix_stream& s) {
  int bytes = 0;
  socklen_t size = sizeof bytes;
  EXPECT_EQ(::getsockopt(s.native_handle(), SOL_SOCKET, SO_SNDBUF, &bytes, &size), 0);
  return bytes;
}
/// What the kernel makes of the bound.
int bounded() {
  const tp::posix_stream fresh(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int wanted = tp::detail::same_machine_send_buffer;
  EXPECT_EQ(::setsockopt(fresh.native_handle(), SOL_SOCKET, SO_SNDBUF, &wanted, sizeof wanted), 0);
  return send_buffer(fresh);
}
bool no_delay(int fd) {
  int on = 0;
  socklen_t size = sizeof on;
  return ::getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, &size) == 0 && on != 0;
}

/// When the kernel asks a silent other end if it is there: whether it does, after so many seconds, and every so many.
std::vector<int> asks(int fd) {
  std::vector<int> all;
  for (const auto& [level, option] :
       {std::pair{SOL_SOCKET, SO_KEEPALIVE}, {IPPROTO_TCP, TCP_KEEPIDLE}, {IPPROTO_TCP, TCP_KEEPINTVL}}) {
    all.push_back(-1);
    socklen_t size = sizeof all.back();
    EXPECT_EQ(::getsockopt(fd, level, option, &all.back(), &size), 0);
  }
  return all;
}

struct ends {
  tp::posix_stream connected, accepted;
};
/// Once more if a busy machine took longer to shake hands than two ends on one machine do.
ends connect_over(const char* listen_on, const std::string& host) {
  auto listener = tp::tcp_listener::open(listen_on);
  if (!listener) return {};
  for (int i = 0;; ++i) {
    auto connected = tp::tcp_connect(host + ":" + std::to_string(listener->port()), steady_clock::now() + 10s);
    auto accepted = listener->accept(10s);
    EXPECT_TRUE(connected && accepted);
    if (!connected || !accepted) return {};
    if (i == 20 || (tp::detail::to_same_machine(connected->native_handle()) &&
                    tp::detail::to_same_machine(accepted->native_handle())))
      return {std::move(*connected), std::move(*accepted)};
  }
}
void expect_bounded(const ends& e) {
  for (const auto* s : {&e.connected, &e.accepted}) {
    EXPECT_EQ(send_buffer(*s), bounded());
    EXPECT_TRUE(no_delay(s->native_handle()));
  }
}

TEST(TcpTuning, The_send_buffer_is_bounded_on_one_machine) { expect_bounded(connect_over("127.0.0.1:0", "127.0.0.1")); }

// As Debian names the machine itself in /etc/hosts: the connection comes from 127.0.0.1.
TEST(TcpTuning, The_same_from_one_loopback_address_to_another) {
  expect_bounded(connect_over("127.0.1.1:0", "127.0.1.1"));
}

TEST(TcpTuning, The_same_over_ipv_6) {
  const auto e = connect_over("[::1]:0", "[::1]");
  if (e.connected.native_handle() < 0) GTEST_SKIP() << "no IPv6 here";
  expect_bounded(e);
}

bool one_machine(const char* a, const char* b) {
  const auto parsed = [](const char* text) {
    sockaddr_storage s{};
    s.ss_family = std::strchr(text, ':') == nullptr ? AF_INET : AF_INET6;
    void* const to = s.ss_family == AF_INET ? static_cast<void*>(&reinterpret_cast<sockaddr_in&>(s).sin_addr)
                                            : &reinterpret_cast<sockaddr_in6&>(s).sin6_addr;
    EXPECT_EQ(::inet_pton(s.ss_family, text, to), 1) << text;
    return tp::detail::address_of(s);
  };
  return tp::detail::same_machine(parsed(a), parsed(b));
}
TEST(TcpTuning, Addresses_that_are_alike_or_loopback_are_one_machine) {
  EXPECT_TRUE(one_machine("192.0.2.1", "192.0.2.1"));
  EXPECT_TRUE(one_machine("192.0.2.1", "::ffff:192.0.2.1"));
  EXPECT_TRUE(one_machine("127.0.0.1", "127.255.0.2"));
  EXPECT_TRUE(one_machine("::ffff:127.0.0.1", "::ffff:127.0.1.1"));
  EXPECT_TRUE(one_machine("2001:db8::1", "2001:db8::1"));
  EXPECT_FALSE(one_machine("192.0.2.1", "192.0.2.2"));
  EXPECT_FALSE(one_machine("127.0.0.1", "192.0.2.1"));
  EXPECT_FALSE(one_machine("126.0.0.1", "126.0.0.2"));
  EXPECT_FALSE(one_machine("::1", "127.0.0.1"));
  EXPECT_FALSE(one_machine("2001:db8::1", "2001:db8::2"));
  EXPECT_FALSE(one_machine("::7f00:1", "::7f00:2"));
  const sockaddr_storage local{};
  EXPECT_FALSE(tp::detail::same_machine(tp::detail::address_of(local), tp::detail::address_of(local)));
}

/// This process's connected socket with that port at its own end, or at the other; -1 without one.
int socket_with(std::uint16_t port, bool at_the_other) {
  for (int fd = 3; fd < 1024; ++fd) {
    sockaddr_in here{}, there{};
    socklen_t size = sizeof here;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &size) != 0 || here.sin_family != AF_INET) continue;
    size = sizeof there;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&there), &size) == 0 &&
        ntohs((at_the_other ? there : here).sin_port) == port)
      return fd;
  }
  return -1;
}
TEST(TcpTuning, A_host_tunes_what_it_accepts_and_what_it_connects) {
  tp::event_loop io;
  tp::detail::silent_handler handler;
  using net = raw_net<tiny, tp::tcp>;
  net::host<tp::detail::silent_handler, tp::no_consumer> accepting(io, handler), connecting(io, handler);
  const auto port = accepting.listen(any_port);
  ASSERT_TRUE(port);
  ASSERT_TRUE(connecting.connect(local(*port)));
  const auto all_tuned = [&] { return no_delay(socket_with(*port, false)) && no_delay(socket_with(*port, true)); };
  const auto end = steady_clock::now() + 5s;
  while (!all_tuned() && steady_clock::now() < end) io.run_for(10ms);
  EXPECT_TRUE(all_tuned());
}

// A firewall forgot a connection that was silent while a model was trained, and neither end noticed.
TEST(TcpTuning, Both_ends_of_a_silent_connection_ask_for_a_sign_of_life_within_half_a_minute) {
  const auto e = connect_over("127.0.0.1:0", "127.0.0.1");
  for (const auto* s : {&e.connected, &e.accepted}) EXPECT_EQ(asks(s->native_handle()), (std::vector{1, 20, 4}));
}

// Before this the pull waited for its time-out, 10 minutes, on a line that was gone.
TEST(TcpTuning, The_line_is_asked_for_more_often_while_a_pull_waits_for_bytes_than_between_pulls) {
  using net = tp::pipeline<tp::raw_tensors<tiny>, tp::fixed_bytes<1_KiB>, tp::tcp>;
  owner_at_work<net, tiny> o;
  const auto port = o.owner->port();
  std::vector<int> seen;  // at the first event: the last one comes when the pull has ended
  const auto see = [&](const tp::progress_event&) {
    if (const int fd = socket_with(port, true); seen.empty() && fd >= 0) seen = asks(fd);
  };
  const auto mine = blank<tiny>();
  ASSERT_TRUE(net::download_tensors(local(port), o.ref, *mine, {.progress = see, .progress_interval = 0ms}));
  EXPECT_EQ(seen, (std::vector{1, 5, 2}));
  auto session = net::session::connect(local(port));
  ASSERT_TRUE(session);
  for (int i = 0; i < 2; ++i) {
    seen.clear();
    ASSERT_TRUE(session->download_tensors(o.ref, *mine, {.progress = see, .progress_interval = 0ms}));
    EXPECT_EQ(seen, (std::vector{1, 5, 2}));
    EXPECT_EQ(asks(socket_with(port, true)), (std::vector{1, 20, 4}));
  }
}

// One of the addresses is silent, as behind a firewall, and the other one refuses, as before an owner has started.
TEST(TcpTuning, An_address_that_refuses_is_an_answer_although_another_one_is_silent) {
  const raw_listener full(0);
  const own_port nobody;
  std::vector<tp::posix_stream> waiting;
  sockaddr_in silent{}, refuses{};
  silent.sin_family = refuses.sin_family = AF_INET;
  silent.sin_addr.s_addr = refuses.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  silent.sin_port = htons(full.port());
  refuses.sin_port = htons(nobody);
  for (int i = 0; i < 4; ++i) {
    waiting.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)::connect(waiting.back().native_handle(), reinterpret_cast<sockaddr*>(&silent), sizeof silent);
  }
  addrinfo second{}, first{};
  first.ai_family = second.ai_family = AF_INET;
  first.ai_socktype = second.ai_socktype = SOCK_STREAM;
  first.ai_addrlen = second.ai_addrlen = sizeof silent;
  first.ai_next = &second;
  for (const bool refused_first : {false, true}) {
    first.ai_addr = reinterpret_cast<sockaddr*>(refused_first ? &refuses : &silent);
    second.ai_addr = reinterpret_cast<sockaddr*>(refused_first ? &silent : &refuses);
    // a share of the time was an hour
    const auto deadline = steady_clock::now() + 2h;
    const time_passes a_minute(60s);
    const auto s = tp::detail::connect_any(&first, "both", deadline, {});
    EXPECT_EQ(code_of(s), errc::connection_failed);
    EXPECT_EQ(s.error().system, ECONNREFUSED);
  }
}
// The kernel asks again after 1, 3, 7, 15 and 31 s: a line that was gone for 16 s would wait for 15 more.
TEST(TcpTuning, A_silent_address_is_connected_to_anew_at_least_every_five_seconds) {
  std::vector<unsigned> asked;
  for (unsigned round = 0, at = 0; at < 120;
       at += static_cast<unsigned>(tp::detail::patience_in_round(round++).count()))
    for (const unsigned after : {0u, 1u, 3u, 7u, 15u})
      if (after < static_cast<unsigned>(tp::detail::patience_in_round(round).count())) asked.push_back(at + after);
  for (std::size_t i = 1; i < asked.size(); ++i) EXPECT_LE(asked[i] - asked[i - 1], 5u);
}

TEST(TcpTuning, What_is_no_tcp_socket_is_left_alone) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const tp::posix_stream a(pair[0]), b(pair[1]);
  const int before = send_buffer(a);
  tp::detail::tune_connected(a.native_handle());
  EXPECT_EQ(send_buffer(a), before);
  EXPECT_FALSE(tp::detail::to_same_machine(-1));
  EXPECT_FALSE(tp::detail::line_is_gone(a.native_handle()));
}

}  // namespace tcp_tuning_test
