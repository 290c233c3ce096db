#include "pull_over.hpp"

#include <tensorpull/satellites/nats/nats.hpp>

namespace tools {

tp::result<tp::receipt> pull_over_nats(const pull_call& call, pull_target to) {
  return pull_in_datagrams<tp::nats>(call, to);
}

}  // namespace tools
