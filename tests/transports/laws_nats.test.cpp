// The laws of all transports over NATS.
#include "laws.hpp"
#include "nats_network.hpp"
#include "two_way_laws.hpp"

namespace laws_nats_test {

using namespace test;

struct nats_room : usual_room {
  using transport = tp::nats;
  template <class Model>
  using net = nats_net<Model>;
  // the server says that nobody listens for a reference
  static constexpr auto unknown = tp::errc::connection_failed;
  static constexpr bool waits_for_owners = false;
  static bool available() { return !nats_program().empty(); }

  template <class Model>
  auto open(const tp::authorise_callback& may) {
    return net<Model>::downloader::open({.server = {.url = url}, .serving = {.authorise = may}});
  }
  const std::string& where() const { return url; }

  nats_process server;
  std::string url = server.url();
};
INSTANTIATE_TYPED_TEST_SUITE_P(Nats, Laws, nats_room);

struct nats_pair : usual_pair {
  using net = nats_net<mlp>;
  static bool available() { return nats_room::available(); }
  auto ends() {
    const std::string name = "room." + std::to_string(++rooms);
    auto far = net::session::open(room.url + "#" + name);
    return std::pair(net::session::connect(tp::nats_meeting{{.url = room.url}, name}), std::move(far));
  }
  nats_room room;
  int rooms = 0;
};
INSTANTIATE_TYPED_TEST_SUITE_P(Nats, TwoWayLaws, nats_pair);

}  // namespace laws_nats_test
