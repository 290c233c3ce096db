// The table of transports in include/tensorpull/transports/README.md says what the policies' constants say.
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/transports/host/owner.hpp>
#include <tensorpull/transports/over/loopback/loopback.hpp>
#include <tensorpull/transports/over/pipe/pipe.hpp>
#include <tensorpull/transports/over/serial/serial.hpp>
#include <tensorpull/transports/over/tcp/tcp.hpp>
#include <tensorpull/transports/over/udp/udp.hpp>
#include <tensorpull/transports/over/unix_socket/unix_socket.hpp>

#include "transport_table.hpp"

namespace tp = tensorpull;

TEST(TransportTable, Says_what_the_policies_say) {
  test::table_says<tp::loopback>("loopback");
  test::table_says<tp::unix_socket>("unix_socket");
  test::table_says<tp::child_process>("child_process");
  test::table_says<tp::tcp>("tcp");
  test::table_says<tp::udp>("udp");
  test::table_says<tp::serial>("serial");
}

// One shape for all: where, and how.
template <class Transport>
tp::result<void> opens(const auto& where) {
  using owner = typename tp::pipeline<tp::tensor_list, tp::fit_datagram, Transport>::downloader;
  const auto one = owner::open(where, {.limits = {.owner_bytes_per_second = 1'000'000}, .room = {}});
  if (!one) return tp::failure(one.error());
  const auto other = owner::open(where);
  return other ? tp::result<void>{} : tp::failure(other.error());
}
TEST(OwnersOverAnyTransport, Are_opened_with_an_address_and_limits) {
  EXPECT_TRUE(opens<tp::tcp>("127.0.0.1:0"));
  EXPECT_TRUE(opens<tp::tcp>(std::string("127.0.0.1:0")));
  EXPECT_TRUE(opens<tp::udp>("127.0.0.1:0"));
  EXPECT_EQ(opens<tp::unix_socket>(std::string_view("/no/such/folder/x")).error(), tp::errc::connection_failed);
  EXPECT_EQ(opens<tp::serial>("/no/such/line").error(), tp::errc::connection_failed);
}
