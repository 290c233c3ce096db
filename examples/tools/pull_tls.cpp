#include "pull_over.hpp"

#include "tls_context_of.hpp"

namespace tools {

tp::result<tp::receipt> pull_over_tls(const pull_call& call, pull_target to) {
  const link_choice& link = call.link;
  const auto context = tls_context_of(link.tls);
  if (!context) return tp::failure(context.error());
  return pull_over_all<tp::tls>(call, to, [&](std::string_view address) {
    return tp::tls_address{address, *context, link.tls.name, {link.proxy, link.proxy_user, link.proxy_password}};
  });
}

}  // namespace tools
