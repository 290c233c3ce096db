// A URL of HTTP, as libcurl reads it.
#pragma once

#include <tensorpull/satellites/http/detail/characters.hpp>
#include <tensorpull/satellites/http/detail/curl.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace tensorpull {

/// A URL, in one spelling.
struct http_url {
  /// The whole, with its port. It has the query, which may have a signature: do not print it.
  std::string text{};
  std::size_t origin_bytes = 0;  ///< of scheme, host and port, in front

  /// Whether it is https.
  bool secure() const noexcept { return text.starts_with("https:"); }
  /// Scheme, host and port. Authorisation is sent to one origin alone.
  std::string_view origin() const noexcept { return std::string_view(text).substr(0, origin_bytes); }
  /// "host:port".
  std::string_view address() const noexcept { return origin().substr(secure() ? 8 : 7); }
  /// Path and query as they were written; "/" if there is neither.
  std::string_view target() const noexcept { return std::string_view(text).substr(origin_bytes); }
};

namespace detail {

/// Reads `text`, which may be relative to `base` if that is not empty. Error: bad_address with `name`.
inline result<http_url> read_url(const std::string& base, const std::string& text, std::string_view name) {
  const curl_url_ptr url(curl_is_ready() ? curl_url() : nullptr);
  if (url == nullptr) return failure(errc::out_of_memory);
  const auto takes = [&](const std::string& one, unsigned how) {
    return curl_url_set(url.get(), CURLUPART_URL, one.c_str(), how | CURLU_DISALLOW_USER) == CURLUE_OK;
  };
  const auto part = [&](CURLUPart which) {
    char* out = nullptr;
    (void)curl_url_get(url.get(), which, &out, CURLU_DEFAULT_PORT);
    const curl_text_ptr owned(out);
    return std::string(out != nullptr ? out : "");
  };
  // what was written is sent byte for byte; where a server leads to is without dots
  const bool reads = text.find('\0') == text.npos &&
                     (base.empty() || (!text.empty() && takes(base, CURLU_PATH_AS_IS))) &&
                     takes(text, base.empty() ? CURLU_PATH_AS_IS : 0);
  const std::string scheme = part(CURLUPART_SCHEME), query = part(CURLUPART_QUERY);
  if (!reads || (scheme != "http" && scheme != "https") || !part(CURLUPART_ZONEID).empty())
    return failure(errc::bad_address, 0, name);
  http_url out{scheme + "://" + part(CURLUPART_HOST) + ":" + part(CURLUPART_PORT)};
  for (char& c : out.text) c = in_lower_case(c);
  out.origin_bytes = out.text.size();
  out.text += part(CURLUPART_PATH) + (query.empty() ? "" : "?" + query);
  return out;
}

}  // namespace detail

/// Reads a URL as a user writes it. `bad_address`, which names no part of the text, since it may have a secret: libcurl
/// cannot read it; another scheme; a user or a password in front of the host. What follows a `#` is not sent. Throws
/// std::bad_alloc.
inline result<http_url> parse_http_url(std::string_view text) { return detail::read_url({}, std::string(text), "URL"); }

/// Where a redirect leads: `location` relative to the URL that was asked. Errors: bad_address, as parse_http_url;
/// not_permitted: it leads from https to http.
inline result<http_url> resolve_location(const http_url& base, std::string_view location) {
  auto to = detail::read_url(base.text, std::string(location), "Location");
  if (to && base.secure() && !to->secure())
    return failure(errc::not_permitted, 0, std::string_view("a redirect from https to http"));
  return to;
}

}  // namespace tensorpull
