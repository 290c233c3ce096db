#include "pull_over.hpp"

#include "tls_context_of.hpp"

#include <tensorpull/satellites/http/proxy/proxied_address.hpp>

namespace tools {

tp::result<tp::receipt> pull_over_tls(const pull_call& call, pull_target to) {
  const link_choice& link = call.link;
  const auto context = tls_context_of(link.tls);
  if (!context) return tp::failure(context.error());
  const tp::proxy_dialer through({link.proxy, link.proxy_user, link.proxy_password});
  // without a proxy no connection waits for another to be made
  const tp::dialer* const dialer = link.proxy.empty() ? nullptr : &through;
  return pull_over_all<tp::tls>(
      call, to, [&](std::string_view address) { return tp::tls_address{address, *context, link.tls.name, dialer}; });
}

}  // namespace tools
