// The laws of all transports over UDP and serial lines.
#include "laws.hpp"
#include "serial_network.hpp"
#include "two_way_laws.hpp"
#include "udp_network.hpp"

namespace laws_datagrams_test {

using namespace test;

struct udp_room : usual_room {
  using transport = tp::udp;
  template <class Model>
  using net = tp::pipeline<tp::raw_tensors<Model>, fit, transport>;

  template <class Model>
  auto open(const tp::authorise_callback& may) {
    auto owner = net<Model>::downloader::open({.listen = local(port), .authorise = may});
    if (owner && port == 0) port = owner->port();  // later on it is the same, and another thread reads it
    return owner;
  }
  std::string where() const { return local(port); }
  /// At most the word of its address comes back, which everybody gets, and never more than was said.
  bool stranger(std::string_view said) const {
    test::stranger peer(port);
    peer.say_bytes(std::as_bytes(std::span(said.data(), std::min<std::size_t>(said.size(), 1200))));
    return peer.hear(20ms).size() <= std::min(tp::cookie_bytes, said.size());
  }
  std::uint16_t port = 0;
};
struct serial_room : usual_room {
  using transport = tp::serial;
  template <class Model>
  using net = tp::pipeline<tp::raw_tensors<Model>, tp::fixed_bytes<512>, transport>;
  static constexpr std::uint32_t recipients = 1;  // a line has two ends

  template <class Model>
  auto open(const tp::authorise_callback& may) {
    return net<Model>::downloader::open({.listen = line.right(), .authorise = may});
  }
  std::string where() const { return line.left(); }

  noisy_line line;
};
INSTANTIATE_TYPED_TEST_SUITE_P(Udp, Laws, udp_room);
INSTANTIATE_TYPED_TEST_SUITE_P(Serial, Laws, serial_room);

struct udp_pair : usual_pair {
  using net = udp_room::net<mlp>;
  auto ends() {
    auto far = net::session::open("127.0.0.1:0");
    return std::pair(net::session::connect(local(far->port())), std::move(far));
  }
};
struct serial_pair : usual_pair {
  using model = small;
  using net = serial_net<small>;
  auto ends() { return std::pair(net::session::connect(line.left()), net::session::connect(line.right())); }
  noisy_line line;
};
INSTANTIATE_TYPED_TEST_SUITE_P(Udp, TwoWayLaws, udp_pair);
INSTANTIATE_TYPED_TEST_SUITE_P(Serial, TwoWayLaws, serial_pair);

}  // namespace laws_datagrams_test
