// Pulls from any web server (http://, https://).
#include "http.hpp"

#include <tensorpull/satellites/http/recipient/http_pull.hpp>

namespace tensorpull::python {

void check_web_url(std::string_view url, const tls_settings* tls) {
  (void)value_or_raise(parse_http_url(url));
#if TENSORPULL_PYTHON_TLS
  // a redirect may lead to another host, which cannot have the same name
  if (tls != nullptr && !tls->given().check_hostname.empty())
    raise(errc::invalid_argument, "check_hostname", "the certificate of a URL is checked for the URL's host");
#else
  (void)tls;
#endif
}

ref_id web_reference(std::string_view url, ref_id given, std::uint64_t version) {
  return given && version != 0 ? given : value_or_raise(http_reference(url));
}

namespace {
/// A web server sends no digests of chunks, so what cannot be undone is not pulled from there.
template <class Pull>
result<receipt> pull_if_revocable(Pull pull, pull_target to) noexcept {
  return std::visit(
      [&](auto* target) -> result<receipt> {
        if constexpr (std::remove_pointer_t<decltype(target)>::irrevocable) return failure(errc::unsupported_request);
        else return pull(*target);
      },
      to);
}
}  // namespace

result<receipt> pull_web(std::string_view url, const http_settings& how, const tls_settings* tls, const reference& from,
                         pull_target to, const pull_options& options, chunks cut) noexcept {
  http_address at{.url = url,
                  .digest = how.digest,
                  .bearer = how.bearer,
                  .recipient = how.recipient,
                  .most_header_bytes = how.max_header_bytes};
#if TENSORPULL_PYTHON_TLS
  if (tls != nullptr) {
    const tls_arguments& given = tls->given();
    at.proxy = {given.proxy, given.proxy_user, given.proxy_password};
    at.tls = given.options();
  }
#else
  (void)tls;
#endif
  return pull_if_revocable([&](auto& target) { return net<http>::pull(at, from, target, options, cut); }, to);
}

}  // namespace tensorpull::python
