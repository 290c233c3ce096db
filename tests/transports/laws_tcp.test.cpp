// The laws of all transports over TCP.
#include "session_door.hpp"
#include "tcp_room.hpp"
#include "two_way_laws.hpp"

namespace laws_tcp_test {

using namespace test;

INSTANTIATE_TYPED_TEST_SUITE_P(Tcp, Laws, tcp_room);

INSTANTIATE_TYPED_TEST_SUITE_P(Tcp, ThirdParties, crowded_tcp_room);

struct tcp_sessions : session_room<tcp_room> {
  auto third_parties() const {
    return strangers_in_numbers([this] { return raw_peer(port); }, few_strangers);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(TcpSessions, ThirdParties, tcp_sessions);

struct tcp_pair : usual_pair {
  using net = tcp_room::net<mlp>;
  auto ends() {
    auto listener = tp::tcp::listen(any_port);
    return connected_ends<net>(*listener, local(listener->port()));
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Tcp, TwoWayLaws, tcp_pair);

}  // namespace laws_tcp_test
