// The laws of all transports over TLS, with certificates at both ends.
#include "certificates.hpp"
#include "laws.hpp"
#include "network.hpp"
#include "third_parties.hpp"
#include "two_way_laws.hpp"

#include <tensorpull/transports/over/tls/tls.hpp>

namespace laws_tls_test {

using namespace test;

struct tls_room : usual_room {
  static constexpr bool several_connections = true;
  using transport = tp::tls;
  template <class Model>
  using net = tp::pipeline<tp::raw_tensors<Model>, tp::fixed_bytes<64_KiB>, transport>;

  template <class Model>
  auto open(const tp::authorise_callback& may) {
    auto owner = net<Model>::downloader::open(tp::tls_address{address, at_owner}, {.authorise = may});
    if (owner && port == 0) port = owner->port(), address = local(port);  // once: another thread reads them later on
    return owner;
  }
  tp::tls_address where() const { return {address, at_recipient}; }
  bool stranger(std::string_view said) const {
    raw_peer peer(port);
    (void)peer.say(said);
    peer.half_close();  // the beginning of a hello may be one that waits for its rest
    return peer.hear_end();
  }

  pki keys;
  tp::tls_context at_owner = context_of(&keys.server, keys.authority, {.clients_have_certificates = true});
  tp::tls_context at_recipient = context_of(&keys.client, keys.authority);
  std::uint16_t port = 0;
  std::string address = local(0);
};
INSTANTIATE_TYPED_TEST_SUITE_P(Tls, Laws, tls_room);

struct crowded_tls_room : tls_room {
  template <class Model>
  auto open(const tp::authorise_callback& may) {
    auto owner = net<Model>::downloader::open(tp::tls_address{address, at_owner}, crowded(may));
    if (owner && port == 0) port = owner->port(), address = local(port);
    return owner;
  }
  auto third_parties() const {
    return strangers_in_numbers([at = port] { return raw_peer(at); }, 3 * few_places);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Tls, ThirdParties, crowded_tls_room);

struct tls_pair : usual_pair {
  using net = tls_room::net<mlp>;
  auto ends() {
    auto listener = tp::tls_address{"127.0.0.1:0", room.at_owner}.listen();
    const auto address = local(listener->port());
    return connected_ends<net>(*listener, tp::tls_address{address, room.at_recipient});
  }
  tls_room room;
};
INSTANTIATE_TYPED_TEST_SUITE_P(Tls, TwoWayLaws, tls_pair);

}  // namespace laws_tls_test
