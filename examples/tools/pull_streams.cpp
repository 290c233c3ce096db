#include "pull_over.hpp"

#include <tensorpull/satellites/http/proxy/proxied_address.hpp>
#include <tensorpull/satellites/shared_memory/shared_memory.hpp>
#include <tensorpull/transports/over/pipe/pipe.hpp>
#include <tensorpull/transports/over/unix_socket/unix_socket.hpp>

#include <functional>

namespace tools {

tp::result<tp::receipt> pull_over_streams(const pull_call& call, pull_target to) {
  const link_choice& link = call.link;
  const std::string_view where = link.address;
  switch (link.scheme) {
    case link_scheme::unix_url: return pull_over_all<tp::unix_socket>(call, to, std::identity{});
    case link_scheme::shm_url: return pull_over<tp::shared_memory>(where, call, to);
    case link_scheme::pipe_url:
      return where == "-" ? pull_over<tp::standard_streams>(where, call, to)
                          : pull_over<tp::child_process>(where, call, to);
    default:
      // without a proxy no connection waits for another to be made
      if (link.proxy.empty()) return pull_over_all<tp::tcp>(call, to, std::identity{});
      return pull_over_all<tp::tcp>(call, to, [&](std::string_view address) {
        return tp::proxied_address{address, {link.proxy, link.proxy_user, link.proxy_password}};
      });
  }
}

}  // namespace tools
