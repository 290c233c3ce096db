// The laws of all transports over TCP.
#include "laws.hpp"
#include "network.hpp"
#include "support/frames.hpp"
#include "third_parties.hpp"
#include "two_way_laws.hpp"

#include <tensorpull/satellites/replica/replica_owner.hpp>

namespace laws_tcp_test {

using namespace test;

struct tcp_room : usual_room {
  static constexpr bool several_connections = true;
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

struct crowded_tcp_room : tcp_room {
  template <class Model>
  auto open(const tp::authorise_callback& may) {
    auto owner = net<Model>::downloader::open({.listen = local(port), .host = crowded(may)});
    if (owner && port == 0) port = owner->port();
    return owner;
  }
  auto third_parties() const {
    return strangers_in_numbers([at = port] { return raw_peer(at); }, 3 * few_places);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Tcp, ThirdParties, crowded_tcp_room);

/// Recipients and strangers come to a replica. A line of each leads to the coordinator, which has room for them.
struct replica_room : tcp_room {
  using replica_type = tp::replica_of<net<mlp>>;

  void published(const mlp& model, const tp::reference& ref) {
    on.reset();
    if (!replica) {
      auto r = replica_type::open("127.0.0.1:0", local(port),
                                  {.max_connections = few_places, .budgets = crowded().budgets});
      ASSERT_TRUE(r);
      replica.emplace(std::move(*r));
    }
    ASSERT_TRUE(replica->add_tensors(model, {.id = ref.id}));
    on.emplace(*replica);
  }
  std::string where() const { return local(replica->port()); }
  auto third_parties() const {
    return strangers_in_numbers([this] { return raw_peer(replica->port()); }, 3 * few_places);
  }
  std::optional<replica_type> replica;
  std::optional<serving> on;
};
INSTANTIATE_TYPED_TEST_SUITE_P(Replica, ThirdParties, replica_room);

struct tcp_pair : usual_pair {
  using net = tcp_room::net<mlp>;
  auto ends() {
    auto listener = tp::tcp::listen("127.0.0.1:0");
    return connected_ends<net>(*listener, local(listener->port()));
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Tcp, TwoWayLaws, tcp_pair);

}  // namespace laws_tcp_test
