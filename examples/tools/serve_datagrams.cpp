#include "serve_over.hpp"

#include <tensorpull/transports/over/serial/serial.hpp>
#include <tensorpull/transports/over/udp/udp.hpp>

namespace tools {

serving serve_over_datagrams(const link_choice& link) {
  if (link.scheme == link_scheme::udp_url)
    return serve_owner(sending<tp::udp, tp::fit_datagram>::downloader::open({.listen = link.address}));
  return serve_owner(sending<tp::serial, tp::fit_datagram>::downloader::open({.listen = link.address}));
}

}  // namespace tools
