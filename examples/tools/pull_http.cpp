#include "pull_over.hpp"

#include <tensorpull/satellites/http/recipient/http_pull.hpp>

namespace tools {

tp::ref_id http_reference(const std::string& url) {
  const auto id = tp::http_reference(url);
  return id ? *id : tp::ref_id{};
}

tp::result<tp::receipt> pull_over_http(const pull_call& call, pull_target to) {
  const link_choice& link = call.link;
  const tp::http_address at{.url = link.address,
                            .digest = link.http.digest,
                            .bearer = link.http.bearer,
                            .recipient = link.http.recipient,
                            .proxy = {link.proxy, link.proxy_user, link.proxy_password},
                            .tls = link.tls.options()};
  return pull_over<tp::http>(at, call, to);
}

}  // namespace tools
