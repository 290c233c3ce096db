// What a root changes over TCP, TLS, Unix sockets, UDP and serial lines.
#include "root_laws.hpp"
#include "support/own_folder.hpp"
#include "support/own_port.hpp"
#include "transports/certificates.hpp"
#include "transports/network.hpp"
#include "transports/serial_network.hpp"
#include "transports/udp_network.hpp"

#include <tensorpull/transports/over/tls/tls.hpp>
#include <tensorpull/transports/over/unix_socket/unix_socket.hpp>

namespace roots_test {

using namespace test;

struct tcp_room {
  template <class Model>
  using net = raw_net<Model, tp::tcp>;
  template <class Model>
  auto open() {
    return net<Model>::downloader::open({.listen = where()});
  }
  std::string where() const { return local(port); }

  own_port port;
};
struct tls_room {
  template <class Model>
  using net = raw_net<Model, tp::tls>;
  template <class Model>
  auto open() {
    return net<Model>::downloader::open(tp::tls_address{address, at_owner}, {});
  }
  tp::tls_address where() const { return {address, at_recipient}; }

  pki keys;
  tp::tls_context at_owner = context_of(&keys.server, keys.authority, {.clients_have_certificates = true});
  tp::tls_context at_recipient = context_of(&keys.client, keys.authority);
  own_port port;
  std::string address = local(port);
};
struct unix_room {
  template <class Model>
  using net = raw_net<Model, tp::unix_socket>;
  template <class Model>
  auto open() {
    return net<Model>::downloader::open({.listen = name});
  }
  const std::string& where() const { return name; }

  std::string name = abstract_name();
};
struct udp_room {
  template <class Model>
  using net = tp::pipeline<tp::raw_tensors<Model>, fit, tp::udp>;
  template <class Model>
  auto open() {
    return net<Model>::downloader::open({.listen = port.address()});
  }
  const std::string& where() const { return port.address(); }

  own_udp_port port;
};
struct serial_room {
  template <class Model>
  using net = tp::pipeline<tp::raw_tensors<Model>, tp::fixed_bytes<512>, tp::serial>;
  template <class Model>
  auto open() {
    return net<Model>::downloader::open({.listen = line.right()});
  }
  std::string where() const { return line.left(); }

  noisy_line line;
};
INSTANTIATE_TYPED_TEST_SUITE_P(Tcp, Roots, tcp_room);
INSTANTIATE_TYPED_TEST_SUITE_P(Tls, Roots, tls_room);
INSTANTIATE_TYPED_TEST_SUITE_P(Unix, Roots, unix_room);
INSTANTIATE_TYPED_TEST_SUITE_P(Udp, Roots, udp_room);
INSTANTIATE_TYPED_TEST_SUITE_P(Serial, Roots, serial_room);

}  // namespace roots_test
