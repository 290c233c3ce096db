// What third parties cannot do, at a relay, which serves one recipient after the other.
#include "transports/tcp_room.hpp"

#include <tensorpull/satellites/relay/relay.hpp>
#include <tensorpull/transports/over/tcp/tcp_listener.hpp>

namespace laws_relay_test {

using namespace test;

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Laws);  // the room is held to them beside its transport

struct relayed_room : tcp_room {
  using parts = net<mlp>::parts;
  using link = tp::relay_link<parts, tp::posix_stream>;

  void published(const mlp&, const tp::reference& ref) {
    on.reset();
    on.emplace([this, ref](const std::stop_token& stop) {
      std::vector<std::byte> chunk(64 * 1024);
      while (auto recipient = listener.accept(600s, stop)) {
        auto up = tp::tcp_connect(local(port), steady_clock::now() + 100s);
        if (!up) continue;  // the room is being left, and this stranger was still in the queue
        link upstream(std::move(*up));
        (void)tp::relay<parts>(upstream, *recipient, ref, chunk, {600s, stop});
      }
    });
  }
  std::string where() const { return local(listener.port()); }
  /// Each of them holds it for ten seconds at most.
  auto third_parties() const {
    return strangers_in_numbers([this] { return raw_peer(listener.port()); }, 2);
  }
  tp::tcp_listener listener = std::move(*tp::tcp_listener::open(any_port));
  std::optional<joined_thread> on;
};
INSTANTIATE_TYPED_TEST_SUITE_P(Relay, ThirdParties, relayed_room);

}  // namespace laws_relay_test
