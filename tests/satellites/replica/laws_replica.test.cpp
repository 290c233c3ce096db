// What third parties cannot do, at a replica.
#include "transports/tcp_room.hpp"

#include <tensorpull/satellites/replica/replica_owner.hpp>

namespace laws_replica_test {

using namespace test;
using net = tcp_room::net<mlp>;

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Laws);  // the room is held to them beside its transport

/// Recipients and strangers come to a replica. A line of each leads to the coordinator, which has room for them.
struct replica_room : tcp_room {
  static constexpr std::size_t owners = 2;
  using replica_type = tp::replica_of<net<mlp>>;

  void published(const mlp& model, const tp::reference& ref) {
    on.reset();
    if (!replica) {
      auto r = replica_type::open(any_port, local(port), {.max_connections = few_places, .budgets = crowded().budgets});
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

}  // namespace laws_replica_test
