// The laws of all transports over TCP.
#include "laws.hpp"
#include "network.hpp"
#include "two_way_laws.hpp"

namespace laws_tcp_test {

using namespace test;

struct tcp_room : usual_room {
  using transport = tp::tcp;
  template <class Model>
  using net = tp::pipeline<tp::raw_tensors<Model>, tp::fixed_bytes<64_KiB>, tp::tcp>;

  template <class Model>
  auto open(const tp::authorise_callback& may) {
    auto owner = net<Model>::downloader::open({.listen = local(port), .host = {.authorise = may}});
    if (owner && port == 0) port = owner->port();  // later on it is the same, and another thread reads it
    return owner;
  }
  std::string where() const { return local(port); }
  bool stranger(std::string_view said) const {
    raw_peer peer(port);
    (void)peer.say(said);
    return peer.hear_end();
  }
  std::uint16_t port = 0;
};
INSTANTIATE_TYPED_TEST_SUITE_P(Tcp, Laws, tcp_room);

struct tcp_pair : usual_pair {
  using net = tcp_room::net<mlp>;
  auto ends() {
    auto listener = tp::tcp::listen("127.0.0.1:0");
    return connected_ends<net>(*listener, local(listener->port()));
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Tcp, TwoWayLaws, tcp_pair);

}  // namespace laws_tcp_test
