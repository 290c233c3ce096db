// Where the laws of all transports hold over TCP.
#pragma once

#include "laws.hpp"
#include "network.hpp"
#include "support/frames.hpp"
#include "third_parties.hpp"

namespace test {

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

}  // namespace test
