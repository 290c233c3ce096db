// Where the laws of all transports hold over TLS.
#pragma once

#include "certificates.hpp"
#include "laws.hpp"
#include "network.hpp"
#include "support/own_port.hpp"
#include "third_parties.hpp"

#include <tensorpull/transports/over/tls/tls.hpp>

namespace test {

struct tls_room : usual_room {
  using transport = tp::tls;
  template <class Model>
  using net = raw_net<Model, transport>;

  template <class Model>
  auto open(const tp::authorise_callback& may) {
    return net<Model>::downloader::open(tp::tls_address{address, at_owner}, {.authorise = may});
  }
  tp::tls_address where() const { return {address, at_recipient}; }
  auto listen() const { return tp::tls_address{address, at_owner}.listen(); }
  bool stranger(std::string_view said) const {
    raw_peer peer(port);
    (void)peer.say(said);
    peer.half_close();  // the beginning of a hello may be one that waits for its rest
    return peer.hear_end();
  }

  pki keys;
  tp::tls_context at_owner = context_of(&keys.server, keys.authority, {.clients_have_certificates = true});
  tp::tls_context at_recipient = context_of(&keys.client, keys.authority);
  own_port port;
  std::string address = local(port);
};

}  // namespace test
