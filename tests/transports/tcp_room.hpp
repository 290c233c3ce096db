// Where the laws of all transports hold over TCP.
#pragma once

#include "laws.hpp"
#include "network.hpp"
#include "support/frames.hpp"
#include "support/own_port.hpp"
#include "third_parties.hpp"

namespace test {

struct tcp_room : usual_room {
  using transport = tp::tcp;
  template <class Model>
  using net = raw_net<Model, tp::tcp>;

  template <class Model>
  auto open(const tp::authorise_callback& may) {
    return net<Model>::downloader::open({.listen = local(port), .host = {.authorise = may}});
  }
  std::string where() const { return local(port); }
  auto listen() const { return tp::tcp::listen(local(port)); }
  bool stranger(std::string_view said) const {
    raw_peer peer(port);
    (void)peer.say(said);
    return peer.hear_end();
  }
  own_port port;
};
struct crowded_tcp_room : tcp_room {
  template <class Model>
  auto open(const tp::authorise_callback& may) {
    return net<Model>::downloader::open({.listen = local(port), .host = crowded(may)});
  }
  auto third_parties() const {
    return strangers_in_numbers([this] { return raw_peer(port); }, 3 * few_places);
  }
};

}  // namespace test
