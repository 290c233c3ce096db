// The table of transports in include/tensorpull/transports/README.md says what the policies' constants say.
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
