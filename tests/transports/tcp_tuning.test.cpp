// Send buffers: bounded between two ends on one machine, the kernel's own business between two machines.
#include "network.hpp"

#include <tensorpull/transports/tcp_listener.hpp>

#include <algorithm>
#include <fstream>

namespace {

using namespace test;

int send_buffer(const tp::posix_stream& s) {
  int bytes = 0;
  socklen_t size = sizeof bytes;
  EXPECT_EQ(::getsockopt(s.native_handle(), SOL_SOCKET, SO_SNDBUF, &bytes, &size), 0);
  return bytes;
}
/// What the kernel makes of the bound: twice as much, and never more than twice its own limit.
int bounded() {
  int limit = tp::detail::same_machine_send_buffer;
  std::ifstream("/proc/sys/net/core/wmem_max") >> limit;
  return 2 * std::min(limit, tp::detail::same_machine_send_buffer);
}
bool no_delay(const tp::posix_stream& s) {
  int on = 0;
  socklen_t size = sizeof on;
  return ::getsockopt(s.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, &size) == 0 && on != 0;
}

struct ends {
  tp::posix_stream connected, accepted;
};
ends connect_over(const char* listen_on, const std::string& host) {
  auto listener = tp::tcp_listener::open(listen_on);
  if (!listener) return {};
  auto connected = tp::tcp_connect(host + ":" + std::to_string(listener->port()), std::chrono::steady_clock::now() + 10s);
  auto accepted = listener->accept(10s);
  EXPECT_TRUE(connected && accepted);
  return connected && accepted ? ends{std::move(*connected), std::move(*accepted)} : ends{};
}

TEST(TcpTuning, TheSendBufferIsBoundedOnOneMachine) {
  const auto e = connect_over("127.0.0.1:0", "127.0.0.1");
  for (const auto* s : {&e.connected, &e.accepted}) {
    EXPECT_TRUE(tp::detail::to_same_machine(s->native_handle()));
    EXPECT_EQ(send_buffer(*s), bounded());
    EXPECT_TRUE(no_delay(*s));
  }
}

TEST(TcpTuning, TheSameOverIpv6) {
  const auto e = connect_over("[::1]:0", "[::1]");
  if (e.connected.native_handle() < 0) GTEST_SKIP() << "no IPv6 here";
  for (const auto* s : {&e.connected, &e.accepted}) EXPECT_EQ(send_buffer(*s), bounded());
}

TEST(TcpTuning, TwoAddressesAreTwoMachines) {
  // from 127.0.0.1 to 127.0.0.2: as far as addresses tell, somebody else's
  const auto e = connect_over("127.0.0.2:0", "127.0.0.2");
  for (const auto* s : {&e.connected, &e.accepted}) {
    EXPECT_FALSE(tp::detail::to_same_machine(s->native_handle()));
    EXPECT_NE(send_buffer(*s), bounded());
    EXPECT_TRUE(no_delay(*s));
  }
}

TEST(TcpTuning, WhatIsNoTcpSocketIsLeftAlone) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const tp::posix_stream a(pair[0]), b(pair[1]);
  const int before = send_buffer(a);
  tp::detail::tune_connected(a.native_handle());
  EXPECT_EQ(send_buffer(a), before);
  EXPECT_FALSE(tp::detail::to_same_machine(-1));
}

}  // namespace
