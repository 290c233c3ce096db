// The address at the other end of a socket, and of a host's connection.
#include "transports/network.hpp"

#include <tensorpull/links/posix/ip_address.hpp>

#include <sys/un.h>

namespace ip_address_test {

using namespace test;
using net = raw_net<tiny, tp::tcp>;

std::string text_of(const tp::ip_address& a) { return std::string(std::string_view(a.to_text())); }

TEST(IpAddress, Digits_of_both_versions_are_read_and_written) {
  for (const char* const digits : {"192.0.2.1", "0.0.0.0", "255.255.255.255", "2001:db8::1", "::1", "fe80::1",
                                   "1111:2222:3333:4444:5555:6666:7777:8888"}) {
    const auto a = tp::ip_address::of_digits(digits);
    EXPECT_TRUE(a) << digits;
    EXPECT_EQ(text_of(a), digits);
    EXPECT_EQ(a.is_v4(), std::string_view(digits).find(':') == std::string_view::npos) << digits;
  }
  EXPECT_EQ(tp::ip_address::of_digits("::ffff:192.0.2.1"), tp::ip_address::of_digits("192.0.2.1"));
  EXPECT_EQ(text_of(tp::ip_address::of_digits("2001:DB8:0:0::1")), "2001:db8::1");
  for (const char* const none : {"", "::", "localhost", "1.2.3", "1.2.3.4.5", "1.2.3.4:80", "[::1]", "1::2::3",
                                 "0x7f.1", "fe80::1%eth0", " 1.2.3.4"})
    EXPECT_FALSE(tp::ip_address::of_digits(none)) << none;
  EXPECT_EQ(text_of({}), "::");
}
TEST(IpAddress, Neighbours_are_all_of_version_4_and_the_network_of_version_6) {
  const auto of = [](const char* digits) { return tp::ip_address::of_digits(digits).neighbourhood(); };
  EXPECT_NE(of("192.0.2.1"), of("192.0.2.2"));
  EXPECT_NE(of("192.0.2.1"), of("193.0.2.1"));
  EXPECT_EQ(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
  EXPECT_NE(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
}

/// Says from where each connection is.
struct from_where {
  std::vector<std::string> all;
  template <class C> void connected(C& c) {
    const auto from = c.peer_address();
    all.push_back(from ? text_of(from) : "none");
  }
  template <class C> void message(C&, const tp::message&) {}
  template <class C> void pulled(C&, const tp::result<tp::receipt>&) {}
  template <class C> void closed(C&, const tp::error&) {}
};
TEST(IpAddress, A_connection_of_a_host_knows_from_where_it_is_whatever_the_listener_takes) {
  std::vector<tp::posix_stream> kept;
  const auto connect = [&](in_addr_t host, std::uint16_t port) {
    tp::posix_stream s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in here{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(host)}, .sin_zero = {}};
    EXPECT_EQ(::bind(s.native_handle(), reinterpret_cast<const sockaddr*>(&here), sizeof here), 0);
    here.sin_port = htons(port);
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(s.native_handle(), reinterpret_cast<const sockaddr*>(&here), sizeof here), 0);
    kept.push_back(std::move(s));
  };
  std::vector<std::uint8_t> neighbours;
  for (const char* const listen : {"127.0.0.1:0", "[::]:0"}) {
    from_where handler;
    tp::event_loop io;
    net::host<from_where, tp::no_consumer> host(io, handler);
    const auto port = host.listen(listen);
    ASSERT_TRUE(port) << listen;
    connect(INADDR_LOOPBACK + 4, *port);
    ASSERT_TRUE(eventually("it is accepted", [&] {
      io.run_one_for(10ms);
      return !handler.all.empty();
    }));
    EXPECT_EQ(handler.all[0], "127.0.0.5") << listen;
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    kept.emplace_back(ends[0]);
    ASSERT_TRUE(host.adopt(tp::posix_stream(ends[1])));
    ASSERT_TRUE(eventually("it is adopted", [&] {
      io.run_one_for(10ms);
      return handler.all.size() == 2;
    }));
    EXPECT_EQ(handler.all[1], "none") << "a socket without an address of IP";
  }
  for (const char* const listen : {"127.0.0.1:0", "[::]:0"}) {
    auto listener = tp::tcp_listener::open(listen);
    ASSERT_TRUE(succeeded(listener));
    connect(INADDR_LOOPBACK + 4, listener->port());
    const auto accepted = listener->accept(20s);
    ASSERT_TRUE(succeeded(accepted));
    neighbours.push_back(tp::detail::neighbours_of(accepted->native_handle()));
  }
  EXPECT_EQ(neighbours[0], neighbours[1]) << "one address is one neighbour, however it is written";
}
TEST(IpAddress, What_is_no_connected_socket_has_none) {
  EXPECT_FALSE(tp::ip_address::of_peer(-1));
  EXPECT_FALSE(tp::ip_address::of_peer(0));
  EXPECT_FALSE(tp::ip_address::of_peer(raw_listener().native_handle()));
}

}  // namespace ip_address_test
