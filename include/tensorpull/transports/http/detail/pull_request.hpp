// The texts of requests that pulls and uploads have in common, and what the statuses of refusals are called.
#pragma once

#include <tensorpull/transports/http/detail/pull_line.hpp>
#include <tensorpull/transports/http/http_address.hpp>
#include <tensorpull/transports/http/http_url.hpp>
#include <tensorpull/transports/proxy/proxied_stream.hpp>

#include <string>
#include <string_view>

namespace tensorpull::detail {

inline void add_field(std::string& to, std::string_view name, std::string_view value) {
  ((to += name) += ": ") += value, to += "\r\n";
}

/// Whether the request is one to a proxy, which wants the whole URL.
inline bool asks_proxy(const http_address& to, const http_url& url) noexcept {
  return !to.proxy.address.empty() && !url.secure;
}
inline void add_target(std::string& text, const http_address& to, const http_url& url, std::string_view target) {
  if (asks_proxy(to, url)) (text += "http://") += url.authority();
  text += target;
}
/// Host, who asks, and what proves it: for the origin that the caller named, and for nobody to whom that leads us.
inline void add_fields(std::string& text, const http_address& to, const http_url& url, const http_url& origin) {
  add_field(text, "Host", url.authority());
  add_field(text, "User-Agent", "tensorpull");
  if (url.same_origin(origin)) {
    if (!to.bearer.empty()) add_field(text, "Authorization", "Bearer " + std::string(to.bearer));
    else if (!to.user.empty())
      add_field(text, "Authorization", "Basic " + to_base64(std::string(to.user) + ":" + std::string(to.password)));
    if (!to.recipient.empty()) add_field(text, "Tensorpull-Recipient", to.recipient);
  }
  if (asks_proxy(to, url) && !to.proxy.user.empty())
    add_field(text, "Proxy-Authorization",
              "Basic " + to_base64(std::string(to.proxy.user) + ":" + std::string(to.proxy.password)));
}

/// Reads the URL, and refuses what could end a line. Errors: as parse_http_url; invalid_argument.
inline result<http_url> checked_url(const http_address& to) {
  auto url = parse_http_url(to.url);
  if (!url) return url;
  for (const auto text : {to.bearer, to.user, to.password, to.recipient, to.proxy.user, to.proxy.password}) {
    if (text.size() > 4096) return failure(errc::invalid_argument, 0, std::string_view("authorisation"));
    for (const char c : text)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
        return failure(errc::invalid_argument, 0, std::string_view("authorisation"));
  }
  if (to.user.find(':') != to.user.npos || to.proxy.user.find(':') != to.proxy.user.npos)
    return failure(errc::invalid_argument, 0, std::string_view("user"));
  if (!to.proxy.address.empty() && !parse_address(to.proxy.address))
    return failure(errc::bad_address, 0, to.proxy.address);
  return url;
}

inline bool is_redirect(unsigned status) noexcept {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

/// The error of a status that is none of those that were hoped for. The name has the status and the server.
inline error error_of_status(unsigned s, const http_url& url) {
  const errc code = s == 429 || s == 503                           ? errc::busy
                    : s == 401 || s == 403                         ? errc::not_permitted
                    : s == 404                                     ? errc::unknown_reference
                    : s == 410                                     ? errc::withdrawn
                    : s == 407                                     ? errc::proxy_refused
                    : s == 412 || s == 416 || s == 304             ? errc::stale_version
                    : s == 408                                     ? errc::timed_out
                    : s == 400                                     ? errc::bad_request
                    : s == 405 || s == 406 || s == 501 || s == 505 ? errc::unsupported_request
                    : s >= 500                                     ? errc::connection_failed
                    : s >= 400                                     ? errc::bad_request
                                                                   : errc::unexpected_frame;
  return {code, 0, s, refusal_of(s, url.address())};
}

}  // namespace tensorpull::detail
