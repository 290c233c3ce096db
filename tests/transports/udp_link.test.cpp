// UDP sockets as datagram links: both families, many datagrams in one call, what is dropped, and what ends a socket.
#include <tensorpull/transports/over/udp/udp_link.hpp>

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>

#include <algorithm>
#include <string>
#include <vector>

namespace udp_link_test {

using namespace tensorpull;
using namespace std::chrono_literals;

std::string at(std::uint16_t port, const char* host = "127.0.0.1") {
  return std::string(host) + ":" + std::to_string(port);
}

template <class Link>
io_result say(Link& link, std::span<const std::byte> bytes, const udp_address& to = {}) {
  const std::array parts{bytes.first(bytes.size() / 3), bytes.subspan(bytes.size() / 3)};
  return link.collect(parts, to);
}
/// The same, and does not wait for others that could leave with it.
template <class Link>
void say_now(Link& link, std::span<const std::byte> bytes, const udp_address& to = {}) {
  (void)say(link, bytes, to);
  (void)link.wait(false, false, 0ms);
}
/// An open link, and one that is connected to it.
std::pair<result<udp_link>, result<udp_link>> two_ends() {
  auto open = udp_link::open("127.0.0.1:0");
  auto link = udp_link::connect(at(open->port()));
  return {std::move(open), std::move(link)};
}
std::vector<std::byte> numbered(std::size_t bytes, std::uint32_t n) {
  std::vector<std::byte> d(bytes, std::byte(n));
  std::memcpy(d.data(), &n, sizeof n);
  return d;
}
/// What came within a second, or nothing.
template <class Link>
std::vector<std::byte> heard(Link& link, udp_address& from) {
  std::vector<std::byte> memory(65'535);
  for (int i = 0; i < 100; ++i) {
    const auto io = link.receive(memory, from);
    if (io.status == io_status::ok) {
      memory.resize(io.bytes);
      return memory;
    }
    (void)link.wait(true, false, 10ms);
  }
  return {};
}

class BothFamilies : public ::testing::TestWithParam<const char*> {};

TEST_P(BothFamilies, Datagrams_go_both_ways_with_their_addresses) {
  auto open = udp_link::open(std::string(GetParam()) + ":0");
  if (!open) GTEST_SKIP() << "this machine has no such addresses";
  auto one = udp_link::connect(at(open->port(), GetParam())), two = udp_link::connect(at(open->port(), GetParam()));
  ASSERT_TRUE(one && two);
  EXPECT_EQ(say(*one, numbered(100, 1)).bytes, 100u);
  udp_address first, second;
  (void)one->wait(false, false, 0ms);  // it leaves now
  EXPECT_EQ(heard(*open, first), numbered(100, 1));
  say_now(*two, numbered(1200, 2));
  EXPECT_EQ(heard(*open, second), numbered(1200, 2));
  EXPECT_NE(first, second);
  say_now(*open, numbered(8, 3), second);
  EXPECT_EQ(heard(*two, first), numbered(8, 3));
}
INSTANTIATE_TEST_SUITE_P(UdpLink, BothFamilies, ::testing::Values("127.0.0.1", "[::1]"));

TEST(UdpLink, What_is_sent_leaves_at_once) {
  auto [open, link] = two_ends();
  const auto bytes = numbered(100, 1);
  const std::array parts{std::span<const std::byte>(bytes)};
  EXPECT_EQ(link->send(parts, {}).bytes, 100u);
  udp_address from;
  EXPECT_EQ(heard(*open, from), bytes);
}

TEST(UdpLink, One_socket_for_both_families) {
  auto open = udp_link::open("[::]:0");
  if (!open) GTEST_SKIP() << "this machine has no IPv6";
  auto v4 = udp_link::connect(at(open->port()));
  ASSERT_TRUE(v4);
  say_now(*v4, numbered(50, 1));
  udp_address from;
  ASSERT_EQ(heard(*open, from), numbered(50, 1));
  EXPECT_EQ(from.host[10], 0xff);
  say_now(*open, numbered(51, 2), from);
  EXPECT_EQ(heard(*v4, from), numbered(51, 2));
}

TEST(UdpLink, On_every_local_address_each_peer_is_answered_from_the_one_that_it_has_called) {
  for (const char* all : {":0", "0.0.0.0:0", "[::]:0"}) {
    auto open = udp_link::open(all);
    if (!open) continue;  // this machine has no IPv6
    for (const char* host : {"127.0.0.1", "127.0.0.2", "127.0.0.3", "[::1]"}) {
      if (host[0] == '[' && all[0] != '[') continue;
      auto link = udp_link::connect(at(open->port(), host));
      if (!link) continue;
      say_now(*link, numbered(50, 1));
      udp_address from, nobody;
      ASSERT_EQ(heard(*open, from), numbered(50, 1)) << all << ' ' << host;
      for (std::uint32_t i = 0; i < 5; ++i) (void)say(*open, numbered(i == 4 ? 60 : 70, i), from);  // in one call
      (void)open->wait(false, false, 0ms);
      for (std::uint32_t i = 0; i < 5; ++i)
        ASSERT_EQ(heard(*link, nobody), numbered(i == 4 ? 60 : 70, i)) << all << ' ' << host;
    }
  }
}

TEST(UdpLink, Many_datagrams_of_all_lengths_keep_their_bounds_and_their_order) {
  auto [open, link] = two_ends();
  ASSERT_TRUE(open && link);
  udp_address from;
  say_now(*link, numbered(8, 0));
  (void)heard(*open, from);
  const std::size_t lengths[] = {1200, 1200, 1200, 40, 1200, 700, 700, 700, 699, 5, 1200};
  for (std::uint32_t round = 0; round < 40; ++round) {
    std::uint32_t n = 0;
    for (const std::size_t bytes : lengths) ASSERT_EQ(say(*open, numbered(bytes, n++), from).bytes, bytes);
    (void)open->wait(false, false, 0ms);
    n = 0;
    udp_address nobody;
    for (const std::size_t bytes : lengths) ASSERT_EQ(heard(*link, nobody), numbered(bytes, n++)) << round;
  }
}

TEST(UdpLink, Datagrams_of_odd_lengths_lie_at_multiples_of_8_bytes) {
  auto [open, link] = two_ends();
  udp_address from;
  say_now(*link, numbered(8, 0));
  (void)heard(*open, from);
  for (std::uint32_t i = 0; i < 50; ++i) say_now(*open, numbered(i < 40 ? 333 : 221, i), from);
  for (std::uint32_t i = 0; i < 50; ++i) {
    std::span<const std::byte> datagram;
    for (int tries = 0; tries < 100 && datagram.empty(); ++tries)
      if (link->receive_in_place(datagram, from).status != io_status::ok) (void)link->wait(true, false, 10ms);
    const auto expected = numbered(i < 40 ? 333 : 221, i);
    ASSERT_TRUE(std::ranges::equal(datagram, expected)) << i;
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(datagram.data()) % 8, 0u) << i;
  }
}

TEST(UdpLink, More_than_a_call_carries_is_sent_in_several) {
  auto [open, link] = two_ends();
  std::uint32_t sent = 0, came = 0;
  udp_address from;
  std::vector<std::byte> memory(1200);
  for (; sent < 1000; ++sent) {  // the buffer leaves by itself when it is full
    if (say(*link, numbered(1200, sent)).status == io_status::would_block) (void)link->wait(false, true, 100ms), --sent;
    while (open->receive(memory, from).status == io_status::ok) ++came;
  }
  (void)link->wait(false, false, 0ms);
  while (!heard(*open, from).empty() && ++came < sent) {
  }
  EXPECT_EQ(came, sent);
}

TEST(UdpLink, What_is_longer_than_its_datagrams_is_lost) {
  auto open = udp_link::open("127.0.0.1:0");
  auto large = basic_udp_link<9000>::connect(at(open->port()));
  auto small = udp_link::connect(at(open->port()));
  udp_address from;
  EXPECT_EQ(say(*small, numbered(1201, 1)).bytes, 0u);
  (void)say(*large, numbered(1201, 1));
  (void)say(*large, numbered(8999, 2));
  say_now(*large, numbered(1200, 3));
  EXPECT_EQ(heard(*open, from), numbered(1200, 3));
  say_now(*open, numbered(1000, 4), from);
  std::byte little[999];
  (void)large->wait(true, false, 1000ms);
  EXPECT_EQ(large->receive(little, from).status, io_status::would_block) << "longer than the memory: lost";
}

TEST(UdpLink, Datagrams_of_sixty_kilobytes) {
  using large = basic_udp_link<65'507>;
  auto open = large::open("127.0.0.1:0");
  auto link = large::connect(at(open->port()));
  udp_address from;
  ASSERT_EQ(say(*link, numbered(65'507, 9)).bytes, 65'507u);
  (void)link->wait(false, false, 0ms);
  EXPECT_EQ(heard(*open, from), numbered(65'507, 9));
}

TEST(UdpLink, Nobody_there_is_closed_after_some_refusals_and_not_at_once) {
  const std::uint16_t port = udp_link::open("127.0.0.1:0")->port();
  auto link = udp_link::connect(at(port));
  ASSERT_TRUE(link) << "UDP cannot know yet";
  udp_address from;
  std::byte memory[64];
  unsigned sent = 0;
  io_result io{};
  for (const auto end = std::chrono::steady_clock::now() + 20s;
       io.status != io_status::closed && std::chrono::steady_clock::now() < end;) {
    (void)say(*link, numbered(20, ++sent));
    (void)link->wait(true, false, 20ms);
    io = link->receive(memory, from);
  }
  EXPECT_EQ(io.status, io_status::closed);
  EXPECT_EQ(io.system, ECONNREFUSED);
  EXPECT_GE(sent, udp_link::most_refusals);
  EXPECT_EQ(say(*link, numbered(20, 0)).status, io_status::closed);
}

TEST(UdpLink, An_owner_comes_back_before_the_last_refusal) {
  const std::uint16_t port = udp_link::open("127.0.0.1:0")->port();
  auto link = udp_link::connect(at(port));
  udp_address from;
  std::byte memory[64];
  for (unsigned i = 0; i + 1 < udp_link::most_refusals; ++i) {
    (void)say(*link, numbered(20, i));
    (void)link->wait(true, false, 20ms);
    EXPECT_EQ(link->receive(memory, from).status, io_status::would_block);
  }
  auto back = udp_link::open(at(port));
  ASSERT_TRUE(back);
  say_now(*link, numbered(20, 7));
  EXPECT_EQ(heard(*back, from), numbered(20, 7));
}

TEST(UdpLink, A_peer_that_is_gone_is_no_fault_of_the_owners_socket) {
  auto open = udp_link::open("127.0.0.1:0");
  udp_address gone, there;
  {
    auto link = udp_link::connect(at(open->port()));
    say_now(*link, numbered(20, 1));
    (void)heard(*open, gone);
  }
  auto link = udp_link::connect(at(open->port()));
  for (std::uint32_t i = 0; i < 20; ++i) {
    EXPECT_NE(say(*open, numbered(30, i), gone).status, io_status::closed);
    (void)open->wait(false, false, 0ms);
    say_now(*link, numbered(20, i));
    ASSERT_EQ(heard(*open, there), numbered(20, i));
  }
}

/// How many datagrams the kernel hands over in one call to a link that is connected; it puts together what was sent
/// together.
std::size_t heard_at_once(udp_link& link, std::size_t datagram) {
  std::vector<std::byte> memory(65'535);
  iovec room{memory.data(), memory.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr m{};
  m.msg_iov = &room;
  m.msg_iovlen = 1;
  m.msg_control = control;
  m.msg_controllen = sizeof control;
  (void)link.wait(true, false, 1000ms);
  const ssize_t n = ::recvmsg(link.native_handle(), &m, MSG_DONTWAIT);
  return n > 0 ? static_cast<std::size_t>(n) / datagram : 0;
}
TEST(UdpLink, Peers_that_cannot_be_sent_to_make_nobody_slower) {
  auto ends = two_ends();
  auto &open = ends.first, &link = ends.second;
  ASSERT_TRUE(open && link);
  udp_address from;
  say_now(*link, numbered(8, 0));
  ASSERT_FALSE(heard(*open, from).empty());
  const auto send = [&](std::uint32_t datagrams, const udp_address& to) {
    for (std::uint32_t i = 0; i < datagrams; ++i) ASSERT_EQ(say(*open, numbered(500, i), to).bytes, 500u);
    (void)open->wait(false, false, 0ms);
  };
  send(32, from);
  if (heard_at_once(*link, 500) != 32) GTEST_SKIP() << "this system does not send datagrams together";
  udp_address no_port = from, no_route = from, broadcast = from;
  no_port.port = 0;
  no_route.host[12] = 240;
  std::fill(broadcast.host.begin() + 12, broadcast.host.end(), std::uint8_t{255});
  for (const udp_address& to : {no_port, no_route, broadcast}) {
    send(16, to);
    send(32, from);
    EXPECT_EQ(heard_at_once(*link, 500), 32u) << to.port << ' ' << int{to.host[12]};
  }
  // what is collected for others behind them leaves, and in its order
  for (std::uint32_t i = 0; i < 40; ++i) say_now(*open, numbered(500, i), i % 20 < 10 ? no_port : from);
  udp_address nobody;
  for (const std::uint32_t i : {10u, 19u, 30u, 39u}) {
    for (std::vector<std::byte> came; came != numbered(500, i);) {
      came = heard(*link, nobody);
      ASSERT_FALSE(came.empty()) << i;
    }
  }
}

TEST(UdpLink, An_interface_that_cannot_cut_gets_them_one_by_one) {
  auto [open, link] = two_ends();
  udp_address from, nobody;
  say_now(*link, numbered(8, 0));
  ASSERT_FALSE(heard(*open, from).empty());
  const int on = 1;  // without checksums of UDP the kernel cuts nothing
  ASSERT_EQ(::setsockopt(open->native_handle(), SOL_SOCKET, SO_NO_CHECK, &on, sizeof on), 0);
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t i = 0; i < 100; ++i) ASSERT_EQ(say(*open, numbered(500, i), from).bytes, 500u);
    (void)open->wait(false, false, 0ms);
    for (std::uint32_t i = 0; i < 100; ++i) ASSERT_EQ(heard(*link, nobody), numbered(500, i)) << round;
  }
}

TEST(UdpLink, A_datagram_without_a_port_to_answer_to_is_nobodys) {
  const int raw = ::socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_UDP);
  if (raw < 0) GTEST_SKIP() << "only a privileged process can make one";
  auto [open, link] = two_ends();
  // a head of UDP, without a checksum, and 8 bytes
  const std::uint16_t forged[8]{0, htons(open->port()), htons(16), 0, 1, 1, 1, 1};
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::sendto(raw, forged, sizeof forged, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to),
            static_cast<ssize_t>(sizeof forged));
  ::close(raw);
  say_now(*link, numbered(20, 1));
  udp_address from;
  EXPECT_EQ(heard(*open, from), numbered(20, 1));
}

TEST(UdpLink, A_name_with_two_addresses_reaches_the_one_that_answers) {
  auto open = udp_link::open("127.0.0.1:0");
  auto link = udp_link::connect(at(open->port(), "localhost"));  // which may be ::1 first, and nobody listens there
  ASSERT_TRUE(link);
  udp_address from;
  std::vector<std::byte> came;
  std::byte memory[64];
  for (int i = 0; i < 20 && came.empty(); ++i) {
    ASSERT_NE(say(*link, numbered(20, 1)).status, io_status::closed);
    (void)link->wait(true, false, 5ms);
    ASSERT_NE(link->receive(memory, from).status, io_status::closed);
    came.resize(1200);
    const auto io = open->receive(came, from);
    came.resize(io.bytes);
  }
  EXPECT_EQ(came, numbered(20, 1));
}

TEST(UdpLink, Addresses_that_cannot_be_used_are_errors) {
  EXPECT_EQ(udp_link::connect("127.0.0.1").error().code, errc::bad_address);
  EXPECT_EQ(udp_link::connect("no such host.invalid:1").error().code, errc::bad_address);
  EXPECT_EQ(udp_link::open("192.0.2.1:0").error().code, errc::connection_failed);
  auto open = udp_link::open("127.0.0.1:0");
  const auto again = udp_link::open(at(open->port()));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, errc::connection_failed);
  EXPECT_EQ(again.error().system, EADDRINUSE);
}

TEST(UdpLink, Moves_and_closes_its_socket) {
  auto open = udp_link::open("127.0.0.1:0");
  const int fd = open->native_handle();
  {
    udp_link moved = std::move(*open);
    EXPECT_EQ(moved.native_handle(), fd);
    EXPECT_EQ(open->native_handle(), -1);
    *open = std::move(moved);
    EXPECT_EQ(open->native_handle(), fd);
  }
  EXPECT_NE(::fcntl(fd, F_GETFD), -1);
  {
    const udp_link gone = std::move(*open);
  }
  EXPECT_EQ(::fcntl(fd, F_GETFD), -1);
}

TEST(UdpAddress, Is_the_same_value_in_both_forms_of_the_system) {
  sockaddr_storage v4{};
  udp_address a;
  a.host = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
  a.port = 4711;
  (void)detail::system_address_of(a, AF_INET, v4);
  sockaddr_storage v6{};
  (void)detail::system_address_of(a, AF_INET6, v6);
  EXPECT_EQ(detail::udp_address_of(v4), a);
  EXPECT_EQ(detail::udp_address_of(v6), a);
  EXPECT_EQ(detail::udp_address_of(v4).hash(), a.hash());
  udp_address other = a;
  other.port = 4712;
  EXPECT_NE(other.hash(), a.hash());
}

}  // namespace udp_link_test
