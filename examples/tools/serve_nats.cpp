#include "serve_over.hpp"

#include <tensorpull/satellites/nats/nats.hpp>

namespace tools {

serving serve_over_nats(const link_choice& link) {
  return serve_owner(sending<tp::nats, tp::fit_datagram>::downloader::open({.server = {.url = link.address}}));
}

}  // namespace tools
