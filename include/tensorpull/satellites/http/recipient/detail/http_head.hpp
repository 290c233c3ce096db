// The parts of an answer's head that a pull needs, as libcurl has read it, and the errors of refusals.
#pragma once

#include <tensorpull/satellites/http/detail/curl.hpp>
#include <tensorpull/satellites/http/detail/digests.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>

namespace tensorpull::detail {

/// Text of at most 255 characters that is kept.
class bounded_text {
 public:
  /// One that is too long stays empty.
  void assign(std::string_view text) noexcept {
    size_ = text.size() <= text_.size() ? static_cast<std::uint8_t>(text.size()) : std::uint8_t{0};
    std::copy_n(text.begin(), size_, text_.begin());
  }
  std::string_view view() const noexcept { return {text_.data(), size_}; }
  bool empty() const noexcept { return size_ == 0; }

 private:
  std::array<char, 255> text_{};
  std::uint8_t size_ = 0;
};

/// Bytes [from, to) of a file of `total`, which is ~0 if the server does not know it.
struct content_range {
  std::uint64_t from = 0, to = 0, total = 0;
};
/// Reads Content-Range as leniently as libcurl does: "Bytes 0-9/10" and "bytes=0-9/10" are understood. Nothing: it says
/// no range.
inline optional<content_range> parse_content_range(std::string_view text) noexcept {
  if (text.size() < 6 || !same_but_for_case(text.substr(0, 5), "bytes")) return {};
  text.remove_prefix(5);
  text.remove_prefix(std::min(text.find_first_not_of(" \t=:"), text.size()));
  const std::size_t dash = text.find('-'), slash = text.find('/');
  if (dash == text.npos || slash == text.npos || slash < dash) return {};
  const auto first = decimal_number(text.substr(0, dash)),
             last = decimal_number(text.substr(dash + 1, slash - dash - 1)),
             total = decimal_number(text.substr(slash + 1));
  const bool unknown = text.substr(slash + 1) == "*";
  if (!first || !last || *first > *last || *last == beyond_64_bits) return {};
  if (!unknown && (!total || *total == beyond_64_bits || *last >= *total)) return {};
  return content_range{*first, *last + 1, unknown ? ~std::uint64_t{0} : *total};
}

/// The head of an answer.
struct http_head {
  unsigned status = 0;  ///< of the answer
  optional<std::uint64_t> length{};  ///< of the body, if it is said
  optional<content_range> range{};  ///< what Content-Range says, if it says one
  bool encoded = false;  ///< the bytes are not the file's
  bool multipart = false;  ///< several ranges, which nobody has asked for
  bool knows_ranges = false;  ///< Accept-Ranges says that bytes can be asked for
  bool tagged = false;  ///< there was an ETag, be it weak
  bounded_text etag{};  ///< a strong ETag with its quotes; empty: there is none
  bounded_text dated{};  ///< Last-Modified as it was written
  bool dated_strongly = false;  ///< the answer's Date is a minute later (RFC 9110, 8.8.2.2)
  repr_digest digest{};  ///< Repr-Digest
  std::chrono::seconds wait{0};  ///< how long a busy server wants to be left alone, as far as it says so
  std::string location{};  ///< of a redirect
  // What a hub of models states about the file to which its redirect leads.
  bounded_text linked_etag{};  ///< X-Linked-Etag, if it is strong, with its quotes
  optional<std::uint64_t> linked_bytes{};  ///< X-Linked-Size
  bounded_text commit{};  ///< X-Repo-Commit: the version of which it is

  bool is_redirect() const noexcept {
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
  }
  bool is_busy() const noexcept { return status == 429 || status == 503; }
  /// Whether the body is a range. Some servers say 200 with one: its length shows that they mean it.
  bool is_part() const noexcept {
    return status == 206 || (status == 200 && range && length && *length == range->to - range->from);
  }
  /// Whether the body is the whole file.
  bool is_whole() const noexcept { return (status == 200 || status == 203) && !is_part(); }
};

/// The longest time that the field RateLimit names (";t=87"): by then there are requests left again.
constexpr std::uint64_t rate_limit_seconds(std::string_view field) noexcept {
  std::uint64_t most = 0;
  for_each_element(field, [&](std::string_view one) {
    for (std::size_t at = one.find(';'); at != one.npos; at = one.find(';', at + 1)) {
      const std::string_view parameter = trimmed(one.substr(at + 1, one.find(';', at + 1) - at - 1));
      if (!parameter.starts_with("t=")) continue;
      if (const auto n = decimal_number(parameter.substr(2))) most = *n > most ? *n : most;
    }
  });
  return most;
}

/// Reads the head of the answer to a request, once all of it has come. Throws std::bad_alloc.
inline http_head read_head(CURL* easy) {
  http_head h;
  std::size_t times = 0;  // how often the field was there
  const auto field = [&](const char* name, std::size_t which = 0) -> std::string_view {
    curl_header* found = nullptr;
    times = 0;
    if (curl_easy_header(easy, name, which, CURLH_HEADER, -1, &found) != CURLHE_OK) return "";
    times = found->amount;
    const std::string_view value = found->value;
    return value.substr(0, value.find_first_of("\r\n"));  // libcurl 7.88 leaves an end to some that are empty
  };
  const auto each = [&](const char* name, auto take) {
    (void)field(name);
    for (std::size_t i = 0, all = times; i < all; ++i) take(field(name, i));
  };
  long status = 0;
  curl_off_t retry_after = 0;
  (void)curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
  (void)curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &retry_after);
  h.status = static_cast<unsigned>(status);
  h.length = decimal_number(field("Content-Length"));
  if (const auto r = parse_content_range(field("Content-Range")); times == 1) h.range = r;
  each("Content-Encoding", [&](std::string_view list) {
    for_each_element(list, [&](std::string_view one) {
      // these say nothing about bytes, or are left over from an upload
      constexpr std::string_view harmless[]{"identity", "aws-chunked", "none", "binary"};
      h.encoded = h.encoded || std::none_of(std::begin(harmless), std::end(harmless),
                                            [&](std::string_view s) { return same_but_for_case(one, s); });
    });
  });
  h.multipart = same_but_for_case(field("Content-Type").substr(0, 20), "multipart/byteranges");
  h.knows_ranges = same_but_for_case(field("Accept-Ranges"), "bytes");
  // a weak one proves nothing about bytes (RFC 9110, 8.8.1), and neither do two
  const auto strong = [&](std::string_view tag) {
    const bool is = times == 1 && tag.size() >= 2 && tag.find('"', 1) == tag.size() - 1 && tag.front() == '"';
    return is ? tag : std::string_view();
  };
  h.etag.assign(strong(field("ETag")));
  h.tagged = times > 0;
  h.linked_etag.assign(strong(field("X-Linked-Etag")));
  h.linked_bytes = decimal_number(field("X-Linked-Size"));
  h.commit.assign(field("X-Repo-Commit"));
  h.dated.assign(field("Last-Modified"));
  const std::time_t modified = curl_getdate(field("Last-Modified").data(), nullptr),
                    now = curl_getdate(field("Date").data(), nullptr);
  h.dated_strongly = modified >= 0 && now - modified >= 60;
  each("Repr-Digest", [&](std::string_view list) { h.digest.add(list); });
  const auto asked = std::max<std::uint64_t>(retry_after > 0 ? static_cast<std::uint64_t>(retry_after) : 0,
                                             rate_limit_seconds(field("RateLimit")));
  h.wait = std::chrono::seconds(std::min<std::uint64_t>(asked, 1'000'000));
  h.location = field("Location");
  return h;
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

}  // namespace tensorpull::detail
