// Where the requests of one pull or upload go, and what each of them has.
#pragma once

#include <tensorpull/protocol/retry.hpp>
#include <tensorpull/satellites/http/detail/digests.hpp>
#include <tensorpull/satellites/http/recipient/detail/http_lines.hpp>
#include <tensorpull/satellites/http/recipient/http_address.hpp>
#include <tensorpull/satellites/http/recipient/http_url.hpp>
#include <tensorpull/system/host_platform.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace tensorpull::detail {

/// The task of a pull over HTTP, besides its options.
struct http_asked {
  stated_digest digest{};  ///< that the caller states
  std::uint64_t version = 0;  ///< which an owner of this library has to have, if no hash would show it; 0: any
  bool hashes = false;  ///< an XXH3 of the whole is computed
  bool needs_digest = false;  ///< and has to be compared with something
  bool lands = true;  ///< bytes are wanted, and not only what there is
};

/// How many requests may be on their way; 0: one, for all that is missing.
constexpr std::uint32_t http_requests_at_a_time(std::uint32_t connections, std::uint32_t window) noexcept {
  constexpr std::uint32_t usual = 4;
  if (window == 0) return connections;
  return std::min(connections == 0 ? usual : connections, window);
}

/// Borrows the address's texts.
class http_requests {
 public:
  /// Where a file ends, wherever that is.
  static constexpr std::uint64_t to_the_end = ~std::uint64_t{0};

  /// `me`: by which name an owner of this library counts us, if the address has none; empty: by no name.
  http_requests(const http_address& to, const std::string& me)
      : to_(to), bearer_("Authorization: Bearer " + std::string(to.bearer)),
        me_("Tensorpull-Recipient: " + (to.recipient.empty() ? me : std::string(to.recipient))),
        named_(!me.empty() || !to.recipient.empty()) {}
  http_requests(const http_requests&) = delete;

  /// Reads the URL, and refuses what could end a line. Errors: as parse_http_url and check_proxy; invalid_argument: an
  /// authorisation or a name with characters that must not be there; unsupported_request: revocations that are no file.
  result<void> prepare() {
    auto url = parse_http_url(to_.url);
    if (!url) return failure(url.error());
    for (const auto text : {to_.bearer, to_.user, to_.password, to_.recipient})
      if (text.size() > 4096 || !is_printable(text))
        return failure(errc::invalid_argument, 0, std::string_view("authorisation"));
    if (to_.user.find(':') != to_.user.npos) return failure(errc::invalid_argument, 0, std::string_view("user"));
    if (to_.tls.revocations.text.data() != nullptr)
      return failure(errc::unsupported_request, 0, std::string_view("revocations"));
    origin_ = std::move(*url);
    url_ = origin_;
    return check_proxy(to_.proxy);
  }
  const http_url& origin() const noexcept { return origin_; }
  /// Where the origin has led to.
  const http_url& url() const noexcept { return url_; }
  /// Whether that is another place: one that a redirect named.
  bool led_away() const noexcept { return url_.text != origin_.text; }
  void go_to(http_url url) noexcept { url_ = std::move(url); }
  /// Where an answer leads that is a redirect, one more of `redirects` in a row. Errors: not_permitted (too many);
  /// those of resolve_location.
  result<http_url> next(const http_head& h, std::uint32_t& redirects) const {
    if (redirects++ == to_.redirects)
      return failure(errc::not_permitted, h.status, std::string_view("too many redirects"));
    return resolve_location(url_, h.location);
  }

  /// Begins a request to this URL: the caller sets what is its own, and starts it. Errors: out_of_memory.
  result<void> begin(http_lines& over, http_line& l, http_taker& taker, const http_url& url) const {
    if (const auto ok = over.begin(l, taker, url.address(), to_.proxy); !ok) return ok;
    l.set(CURLOPT_URL, url.text);
    l.set(CURLOPT_PATH_AS_IS, 1L);
    l.set(CURLOPT_USERAGENT, "tensorpull");
    // several requests at a time are for several connections, and a connection of HTTP/2 that waits holds all back
    if (over.size() > 1) l.set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    if (url.secure()) trust(l);
    if (url.origin() == origin_.origin()) show_who_we_are(l);
    return {};
  }
  /// Asks for the bytes [from, to) of the file at url(), or for the whole. `if_range`: only if they are of the file
  /// that this names.
  result<void> get(http_lines& over, http_line& l, http_taker& taker, std::uint64_t from, std::uint64_t to,
                   std::string_view if_range, bool whole) const {
    if (const auto ok = begin(over, l, taker, url_); !ok) return ok;
    l.add("Accept-Encoding: identity");
    std::array<char, 300> text{};
    const auto end = text.data() + text.size() - 1;
    if (!whole) {
      char* at = std::to_chars(text.data(), end, from).ptr;
      *at++ = '-';
      *(to != to_the_end ? std::to_chars(at, end, to - 1).ptr : at) = '\0';
      l.set(CURLOPT_RANGE, text.data());
    }
    if (!whole && !if_range.empty()) {
      (void)std::snprintf(text.data(), text.size(), "If-Range: %.*s", static_cast<int>(if_range.size()),
                          if_range.data());
      l.add(text.data());
    }
    return over.start(l);
  }

 private:
  static void set(http_line& l, const pem_source& from, CURLoption file, CURLoption text) {
    curl_blob blob{const_cast<char*>(from.text.data()), from.text.size(), CURL_BLOB_COPY};
    if (from.text.data() != nullptr) l.set(text, &blob);
    else l.set(file, std::string(from.file));
  }
  /// Whom we believe.
  void trust(http_line& l) const {
    const tls_options& tls = to_.tls;
    l.set(CURLOPT_SSLVERSION,
          static_cast<long>(tls.minimum == tls_version::v1_3 ? CURL_SSLVERSION_TLSv1_3 : CURL_SSLVERSION_TLSv1_2));
    if (!tls.revocations.empty()) l.set(CURLOPT_CRLFILE, std::string(tls.revocations.file));
    if (!tls.authorities.empty()) {
      l.set(CURLOPT_CAPATH, static_cast<const char*>(nullptr));  // and nobody besides
      return set(l, tls.authorities, CURLOPT_CAINFO, CURLOPT_CAINFO_BLOB);
    }
    // as OpenSSL's own programs do
    if (const char* const file = std::getenv("SSL_CERT_FILE")) l.set(CURLOPT_CAINFO, file);
    if (const char* const folder = std::getenv("SSL_CERT_DIR")) l.set(CURLOPT_CAPATH, folder);
  }
  /// For the origin that the caller named, and for no other to which that leads.
  void show_who_we_are(http_line& l) const {
    const tls_options& tls = to_.tls;
    if (!tls.certificate.empty()) {
      set(l, tls.certificate, CURLOPT_SSLCERT, CURLOPT_SSLCERT_BLOB);
      set(l, tls.key.empty() ? tls.certificate : tls.key, CURLOPT_SSLKEY, CURLOPT_SSLKEY_BLOB);
      if (!tls.key_password.empty()) l.set(CURLOPT_KEYPASSWD, std::string(tls.key_password));
    }
    if (!to_.bearer.empty()) l.add(bearer_.c_str());
    if (to_.netrc) l.set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_OPTIONAL));
    if (!to_.user.empty()) {
      l.set(CURLOPT_USERNAME, std::string(to_.user));
      l.set(CURLOPT_PASSWORD, std::string(to_.password));
    }
    if (named_) l.add(me_.c_str());
  }

  http_address to_;
  std::string bearer_, me_;
  bool named_;
  http_url origin_{}, url_{};
};

/// The error of a status that is none of those that were hoped for. The name has the status and the server.
inline error error_of_status(unsigned s, const http_url& url) noexcept {
  return {code_of_status(s), 0, s, status_from(s, url.address())};
}

/// How long a server is left alone that was busy so often before: as long as it wants, and longer each time.
inline std::chrono::milliseconds back_off(const retry_policy& policy, unsigned times,
                                          std::chrono::milliseconds asked) noexcept {
  retry_state tries(policy);
  for (unsigned i = 0; i <= std::min(times, 62u); ++i) (void)tries.failed();
  return std::max(asked, tries.delay(host_platform::random()));
}

}  // namespace tensorpull::detail
