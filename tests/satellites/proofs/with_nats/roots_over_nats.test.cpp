// What a root changes over NATS, where anybody whom the server lets in can answer.
#include "root_laws.hpp"
#include "satellites/nats/nats_network.hpp"

namespace roots_over_nats_test {

using namespace test;

struct nats_room {
  template <class Model>
  using net = nats_net<Model>;
  static bool available() { return !nats_program().empty(); }
  template <class Model>
  auto open() {
    return net<Model>::downloader::open({.server = {.url = url, .timeout = std::chrono::minutes(1)}});
  }
  const std::string& where() const { return url; }

  nats_process server;
  std::string url = server.url();
};
INSTANTIATE_TYPED_TEST_SUITE_P(Nats, Roots, nats_room);

}  // namespace roots_over_nats_test
