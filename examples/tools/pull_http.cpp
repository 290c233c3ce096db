#include "pull_over.hpp"

#if TENSORPULL_TOOLS_TLS
#include "tls_context_of.hpp"

#include <tensorpull/satellites/http/https/https_pull.hpp>
#endif
#include <tensorpull/satellites/http/recipient/http_pull.hpp>

namespace tools {

tp::ref_id http_reference(const std::string& url) {
  const auto id = tp::http_reference(url);
  return id ? *id : tp::ref_id{};
}

tp::result<tp::receipt> pull_over_http(const pull_call& call, pull_target to) {
  const link_choice& link = call.link;
  tp::http_address at{.url = link.address,
                      .digest = link.http.digest,
                      .bearer = link.http.bearer,
                      .recipient = link.http.recipient,
                      .proxy = {link.proxy, link.proxy_user, link.proxy_password}};
#if TENSORPULL_TOOLS_TLS
  const auto context = tls_context_of(link.tls);  // a redirect may lead from http to https, too
  if (!context) return tp::failure(context.error());
  return pull_over<tp::https>(tp::https_address{at, *context}, call, to);
#else
  return pull_over<tp::http>(at, call, to);
#endif
}

}  // namespace tools
