// The table of transports in include/tensorpull/transports/README.md says what the policies' constants say.
#include <tensorpull/transports/loopback/loopback.hpp>
#include <tensorpull/transports/pipe/pipe.hpp>
#include <tensorpull/transports/serial/serial.hpp>
#include <tensorpull/transports/shared_memory/shared_memory.hpp>
#include <tensorpull/transports/tcp/tcp.hpp>
#include <tensorpull/transports/udp/udp.hpp>
#include <tensorpull/transports/unix_socket/unix_socket.hpp>

#include "transport_table.hpp"

namespace tp = tensorpull;

TEST(TransportTable, SaysWhatThePoliciesSay) {
  test::table_says<tp::loopback>("loopback");
  test::table_says<tp::shared_memory>("shared_memory");
  test::table_says<tp::unix_socket>("unix_socket");
  test::table_says<tp::child_process>("child_process");
  test::table_says<tp::tcp>("tcp");
  test::table_says<tp::udp>("udp");
  test::table_says<tp::serial>("serial");
}
