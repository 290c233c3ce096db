// The laws of all transports over TLS, with certificates at both ends.
#include "session_door.hpp"
#include "tls_room.hpp"
#include "two_way_laws.hpp"

namespace laws_tls_test {

using namespace test;

INSTANTIATE_TYPED_TEST_SUITE_P(Tls, Laws, tls_room);

struct crowded_tls_room : tls_room {
  template <class Model>
  auto open(const tp::authorise_callback& may) {
    return net<Model>::downloader::open(tp::tls_address{address, at_owner}, crowded(may));
  }
  auto third_parties() const {
    return strangers_in_numbers([this] { return raw_peer(port); }, 3 * few_places);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Tls, ThirdParties, crowded_tls_room);

/// The strangers have certificates, and shake hands.
struct tls_sessions : session_room<tls_room> {
  auto third_parties() const {
    return strangers_in_numbers(
        [this] {
          auto to = where().connect(100s);
          EXPECT_TRUE(succeeded(to));
          return peer_over(to ? std::move(*to) : tp::tls_connection());
        },
        few_strangers);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(TlsSessions, ThirdParties, tls_sessions);

struct tls_pair : usual_pair {
  using net = tls_room::net<mlp>;
  auto ends() {
    auto listener = tp::tls_address{any_port, room.at_owner}.listen();
    const auto address = local(listener->port());
    return connected_ends<net>(*listener, tp::tls_address{address, room.at_recipient});
  }
  tls_room room;
};
INSTANTIATE_TYPED_TEST_SUITE_P(Tls, TwoWayLaws, tls_pair);

}  // namespace laws_tls_test
