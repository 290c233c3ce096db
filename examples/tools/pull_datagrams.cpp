#include "pull_over.hpp"

#include <tensorpull/transports/over/serial/serial.hpp>
#include <tensorpull/transports/over/udp/udp.hpp>

namespace tools {

tp::result<tp::receipt> pull_over_datagrams(const pull_call& call, pull_target to) {
  return call.link.scheme == link_scheme::udp_url ? pull_in_datagrams<tp::udp>(call, to)
                                                  : pull_in_datagrams<tp::serial>(call, to);
}

}  // namespace tools
