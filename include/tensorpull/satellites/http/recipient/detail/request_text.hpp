// The texts of the requests of pulls and uploads, and what the statuses of refusals are called.
#pragma once

#include <tensorpull/satellites/http/recipient/http_address.hpp>
#include <tensorpull/satellites/http/text/detail/text_writer.hpp>
#include <tensorpull/satellites/http/text/http_url.hpp>
#include <tensorpull/system/host_platform.hpp>
#include <tensorpull/transports/blocking/stream_pull.hpp>
#include <tensorpull/transports/over/proxy/proxied_stream.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

namespace tensorpull::detail {

inline void add_field(std::string& to, std::string_view name, std::string_view value) {
  to.append(name).append(": ").append(value).append("\r\n");
}

inline std::string basic(std::string_view user, std::string_view password) {
  return "Basic " + to_base64(std::string(user) + ":" + std::string(password));
}

/// Whether the request is one to a proxy, which wants the whole URL.
inline bool asks_proxy(const http_address& to, const http_url& url) noexcept {
  return !to.proxy.address.empty() && !url.secure;
}
inline void add_target(std::string& text, const http_address& to, const http_url& url, std::string_view target) {
  if (asks_proxy(to, url)) (text += "http://") += url.authority();
  text += target;
}
/// Host, the recipient, and what proves its identity: for the origin that the caller named, and for no other to which
/// that leads us.
inline void add_fields(std::string& text, const http_address& to, const http_url& url, const http_url& origin) {
  add_field(text, "Host", url.authority());
  add_field(text, "User-Agent", "tensorpull");
  if (url.same_origin(origin)) {
    if (!to.bearer.empty()) add_field(text, "Authorization", "Bearer " + std::string(to.bearer));
    else if (!to.user.empty()) add_field(text, "Authorization", basic(to.user, to.password));
    if (!to.recipient.empty()) add_field(text, "Tensorpull-Recipient", to.recipient);
  }
  if (asks_proxy(to, url) && !to.proxy.user.empty())
    add_field(text, "Proxy-Authorization", basic(to.proxy.user, to.proxy.password));
}

/// The line and the fields that every request has.
inline std::string begin_request(std::string_view method, const http_address& to, const http_url& url,
                                 std::string_view target, const http_url& origin) {
  std::string text(method);
  text += ' ';
  add_target(text, to, url, target);
  text += " HTTP/1.1\r\n";
  add_fields(text, to, url, origin);
  return text;
}

/// Reads the URL, and refuses what could end a line. Errors: as parse_http_url; invalid_argument.
inline result<http_url> checked_url(const http_address& to) {
  auto url = parse_http_url(to.url);
  if (!url) return url;
  for (const auto text : {to.bearer, to.user, to.password, to.recipient, to.proxy.user, to.proxy.password}) {
    if (text.size() > 4096 || !is_printable(text))
      return failure(errc::invalid_argument, 0, std::string_view("authorisation"));
  }
  if (to.user.find(':') != to.user.npos || to.proxy.user.find(':') != to.proxy.user.npos)
    return failure(errc::invalid_argument, 0, std::string_view("user"));
  if (!to.proxy.address.empty() && !parse_address(to.proxy.address))
    return failure(errc::bad_address, 0, without_secrets(to.proxy.address));
  return url;
}

/// Where the requests of one pull go, and the text that they have in common. Borrows the address's texts.
class http_requests {
 public:
  /// `me`: who asks, if the address does not name it; none: somebody new.
  http_requests(const http_address& to, recipient_id me) noexcept : to_(to), me_(me) {}
  http_requests(const http_requests&) = delete;

  /// Errors: as checked_url. Throws std::bad_alloc.
  result<void> prepare() {
    auto url = checked_url(to_);
    if (!url) return failure(url.error());
    origin_ = std::move(*url);
    // an owner of this library would take each connection for a recipient, none of which has all bytes
    if (to_.recipient.empty()) {
      text_writer(name_).hex(me_ ? me_.value : random_recipient<host_platform>().value);
      to_.recipient = {name_.data(), name_.size()};
    }
    go_to(origin_);
    return {};
  }
  const http_url& origin() const noexcept { return origin_; }
  /// Where the origin has led to.
  const http_url& url() const noexcept { return url_; }
  /// Whether that is another place: one that a redirect named.
  bool led_away() const noexcept { return !url_.same_origin(origin_) || url_.target != origin_.target; }
  void go_to(http_url url) {
    url_ = std::move(url);
    common_ = begun("GET", url_.target);
    add_field(common_, "Accept-Encoding", "identity");
  }
  /// What requests for bytes have in common, without the empty line.
  std::string_view common() const noexcept { return common_; }
  /// What an owner of this library is told of the end ("/confirm", "/cancel"), without the empty line.
  std::string about_the_end(std::string_view how) const {
    const std::size_t query = std::min(url_.target.find('?'), url_.target.size());
    std::string text = begun("POST", url_.target.substr(0, query).append(how) + url_.target.substr(query));
    add_field(text, "Content-Length", "0");
    return text;
  }

 private:
  std::string begun(std::string_view method, std::string_view target) const {
    return begin_request(method, to_, url_, target, origin_);
  }

  http_address to_;
  recipient_id me_;
  http_url origin_{}, url_{};
  std::array<char, 16> name_{};  // of a recipient whose address names none
  std::string common_{};
};

constexpr bool is_redirect(unsigned status) noexcept {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

constexpr errc code_of_status(unsigned s) noexcept {
  switch (s) {
    case 304:
    case 412:
    case 416: return errc::stale_version;
    case 400: return errc::bad_request;
    case 401:
    case 403: return errc::not_permitted;
    case 404: return errc::unknown_reference;
    case 405:
    case 406:
    case 501:
    case 505: return errc::unsupported_request;
    case 407: return errc::proxy_refused;
    case 408: return errc::timed_out;
    case 410: return errc::withdrawn;
    case 429:
    case 503: return errc::busy;
    default: break;
  }
  if (s >= 500) return errc::connection_failed;
  return s >= 400 ? errc::bad_request : errc::unexpected_frame;
}
/// Whether a place that has given bytes before says with this status that it gives none any more for this URL: the
/// permission in a signed one has run out (stores answer 403, and some 400, 401, 404 or 410).
constexpr bool may_have_expired(unsigned s) noexcept {
  return s == 400 || s == 401 || s == 403 || s == 404 || s == 410;
}
/// The error of a status that is none of those that were hoped for. The name has the status and the server.
inline error error_of_status(unsigned s, const http_url& url) {
  return {code_of_status(s), 0, s, refusal_of(s, url.address())};
}

}  // namespace tensorpull::detail
