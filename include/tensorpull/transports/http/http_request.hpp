// Reads the head of one HTTP/1.1 request, line by line, and refuses whatever two readers might understand differently.
// No heap: what is not needed later is not kept. The parser is our own: it has no allocation at all, and needs a line
// and not a head in memory.
#pragma once

#include <tensorpull/core/ids.hpp>
#include <tensorpull/std/optional.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace tensorpull {

/// What a request asks for.
enum class http_method : std::uint8_t {
  get,
  head,
  post,
  options  ///< a browser asks whether a page may; read only if the owner answers it
};

/// What its path names.
enum class http_route : std::uint8_t {
  nothing,  ///< no resource of ours
  image,    ///< /v1/NAME/VERSION: a published image
  confirm,  ///< /v1/NAME/VERSION/confirm
  cancel,   ///< /v1/NAME/VERSION/cancel
  metrics,  ///< /metrics
};

/// The entity tags of a condition. More than fit make it one that is not evaluated, or that fails, whichever is safe.
struct http_tags {
  static constexpr std::size_t most = 8;      ///< that are remembered
  std::array<std::uint64_t, most> tags{};     ///< those that could be ours
  std::uint8_t count = 0;                     ///< of `tags`
  bool given = false;                         ///< the field was there
  bool any = false;                           ///< it was "*"

  /// Whether it names this version.
  constexpr bool names(std::uint64_t version) const noexcept {
    for (std::size_t i = 0; i < count; ++i)
      if (tags[i] == version) return true;
    return any;
  }
};

/// The bytes that a request wants of an image.
struct http_range {
  /// What the field said.
  enum class kind : std::uint8_t {
    none,     ///< nothing that has to be honoured: no field, another unit, or several ranges
    from_to,  ///< `first` to `last`, both included
    suffix,   ///< the last `last` bytes
    wrong,    ///< it cannot be satisfied, whatever the length
  };
  kind is = kind::none;      ///< which of them
  std::uint64_t first = 0;   ///< see above
  std::uint64_t last = 0;    ///< see above; all bits: to the end
};

/// A request as far as an owner needs it.
struct http_request {
  http_method method = http_method::get;    ///< what is to be done
  http_route route = http_route::nothing;   ///< with what
  std::uint64_t version = 0;                ///< of the path; 0: latest
  ref_id key{};  ///< of the Authorization field or of the URL; none: there was none that could be one
  bool key_given = false;  ///< there was a key, perhaps one that could not be one
  bool key_in_url = false;  ///< it stood in the URL
  recipient_id recipient{};  ///< who asks; none: the connection stands for it
  http_range range{};  ///< which bytes
  http_tags if_match{};  ///< one of these versions is wanted
  http_tags if_none_match{};  ///< none of these is: the other end has them
  bool if_range_given = false;  ///< the range counts only if `if_range` is the version
  std::uint64_t if_range = 0;  ///< 0: something that is not ours
  std::uint64_t body_bytes = 0;  ///< that follow the head
  std::uint64_t digest = 0;  ///< of Repr-Digest, if `digest_given`
  bool digest_given = false;  ///< the recipient says what it has
  bool keep_alive = true;  ///< another request may follow
  bool old = false;  ///< HTTP/1.0, whose connections end unless both sides say that they are kept
  bool expects_continue = false;  ///< it waits for 100 before it sends the body
};

namespace detail {

constexpr bool is_http_token(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}
constexpr char http_lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
/// `name` is in lower case.
constexpr bool http_same(std::string_view text, std::string_view name) noexcept {
  if (text.size() != name.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (http_lower(text[i]) != name[i]) return false;
  return true;
}
constexpr std::string_view http_trimmed(std::string_view s) noexcept {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}
/// Calls `each` with the elements of a list, which commas part. Entity tags may have commas between their quotes.
template <class Each>
constexpr void http_elements(std::string_view list, Each each) noexcept {
  std::size_t begin = 0;
  bool quoted = false;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && list[i] == '"') quoted = !quoted;
    if (i < list.size() && (list[i] != ',' || quoted)) continue;
    if (const auto one = http_trimmed(list.substr(begin, i - begin)); !one.empty()) each(one);
    begin = i + 1;
  }
}
/// Digits alone; what is above 64 bits is the greatest number.
constexpr optional<std::uint64_t> http_number(std::string_view s) noexcept {
  if (s.empty()) return {};
  std::uint64_t n = 0;
  for (const char c : s) {
    if (c < '0' || c > '9') return {};
    const auto digit = static_cast<std::uint64_t>(c - '0');
    n = n > (~std::uint64_t{0} - digit) / 10 ? ~std::uint64_t{0} : n * 10 + digit;
  }
  return n;
}
/// 16 hexadecimal digits of lower case: a version as our URLs and tags write it.
constexpr optional<std::uint64_t> http_version_number(std::string_view s) noexcept {
  if (s.size() != 16) return {};
  std::uint64_t n = 0;
  for (const char c : s) {
    if (c >= '0' && c <= '9') n = n << 4 | static_cast<std::uint64_t>(c - '0');
    else if (c >= 'a' && c <= 'f') n = n << 4 | static_cast<std::uint64_t>(c - 'a' + 10);
    else return {};
  }
  return n;
}
/// A strong entity tag that could be ours.
constexpr optional<std::uint64_t> http_tag(std::string_view s) noexcept {
  if (s.size() != 18 || s.front() != '"' || s.back() != '"') return {};
  return http_version_number(s.substr(1, 16));
}
/// The eight bytes of an XXH3 digest in a field of RFC 9530, `xxh3=:BASE64:`.
constexpr optional<std::uint64_t> http_digest(std::string_view value) noexcept {
  if (value.size() != 14 || value.front() != ':' || value.back() != ':') return {};
  const std::string_view text = value.substr(1, 12);
  if (text[11] != '=') return {};
  std::uint64_t high = 0;
  std::uint32_t sextet = 0;
  for (std::size_t i = 0; i < 11; ++i) {
    const auto at = std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/").find(text[i]);
    if (at == std::string_view::npos) return {};
    sextet = static_cast<std::uint32_t>(at);
    if (i < 10) high = high << 6 | sextet;
  }
  if ((sextet & 3) != 0) return {};  // bits that no encoder sets
  return high << 4 | sextet >> 2;
}

}  // namespace detail

/// Takes a head line by line, each without its CRLF, and says which status refuses it. One for each request.
class http_request_reader {
 public:
  /// Bytes of a line, with its end.
  static constexpr std::size_t most_line_bytes = 2048;
  /// Bytes of a head.
  static constexpr std::size_t most_head_bytes = 16 * 1024;
  /// Fields of a head.
  static constexpr std::size_t most_fields = 64;
  /// Bytes of a body: only a confirmation has one.
  static constexpr std::size_t most_body_bytes = 256;

  /// How the reading goes on after a line. Another value is the status of a refusal, after which the connection cannot
  /// go on.
  enum : std::uint16_t {
    more = 0,  ///< the head goes on
    whole = 1,  ///< it is complete: request() is
  };

  /// `takes_options`: the method OPTIONS is read like the others, and not refused.
  constexpr explicit http_request_reader(bool takes_options = false) noexcept : takes_options_(takes_options) {}

  /// The next line. `more`, `whole`, or a status: 400, 405, 411, 413, 414, 417, 431, 501 or 505.
  std::uint16_t line(std::string_view text) noexcept {
    head_bytes_ += text.size() + 2;
    if (head_bytes_ > most_head_bytes) return 431;
    for (const char c : text)
      if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f) return 400;  // among them NUL and a bare CR
    if (!begun_) {
      if (text.empty())
        return std::exchange(blank_, true) ? std::uint16_t{400} : std::uint16_t{more};  // one is left over by some
                                                                                        // clients after a body
      begun_ = true;
      return first(text);
    }
    return text.empty() ? end() : field(text);
  }
  /// Valid once line() said `whole`.
  const http_request& request() const noexcept { return r_; }
  /// Whether the method is HEAD, as far as it is known: an answer to HEAD has no body, a refusal included.
  bool is_head() const noexcept { return r_.method == http_method::head; }

 private:
  std::uint16_t first(std::string_view text) noexcept {
    const std::size_t a = text.find(' '), b = text.rfind(' ');
    if (a == text.npos || a == 0 || b == a) return 400;
    const std::string_view method = text.substr(0, a), target = text.substr(a + 1, b - a - 1),
                           version = text.substr(b + 1);
    for (const char c : method)
      if (!detail::is_http_token(c)) return 400;
    if (version.size() != 8 || version.substr(0, 5) != "HTTP/" || version[5] < '0' || version[5] > '9' ||
        version[6] != '.' || version[7] < '0' || version[7] > '9')
      return 400;
    if (version[5] != '1') return 505;
    r_.old = version[7] == '0';
    r_.keep_alive = !r_.old;
    if (method == "GET") r_.method = http_method::get;
    else if (method == "HEAD") r_.method = http_method::head;
    else if (method == "POST") r_.method = http_method::post;
    else if (takes_options_ && method == "OPTIONS") r_.method = http_method::options;
    else
      return method == "PUT" || method == "DELETE" || method == "OPTIONS" || method == "PATCH" || method == "TRACE" ||
                     method == "CONNECT"
                 ? 405
                 : 501;
    return path(target);
  }

  /// Only what our own URLs consist of: nothing that one reader decodes and another does not.
  std::uint16_t path(std::string_view target) noexcept {
    if (target.empty() || target.front() != '/') return 400;  // the form with a host, too: this is no proxy
    const std::size_t question = target.find('?');
    std::string_view rest = target.substr(0, question),
                     query = question == target.npos ? std::string_view() : target.substr(question + 1);
    for (const char c : rest)
      if (!is_plain(c) && c != '/') return 400;
    std::array<std::string_view, 4> part{};
    std::size_t parts = 0;
    bool fits = true;
    rest.remove_prefix(1);
    for (bool last = false; !last;) {
      const std::size_t slash = rest.find('/');
      last = slash == rest.npos;
      const std::string_view one = rest.substr(0, slash);
      if (one == "." || one == "..") return 400;
      if (parts == part.size()) fits = false;
      else part[parts++] = one;
      if (!last) rest.remove_prefix(slash + 1);
    }
    if (fits && parts == 1 && part[0] == "metrics") r_.route = http_route::metrics;
    if (fits && parts >= 3 && part[0] == "v1" && !part[1].empty() && part[1].size() <= 64) {
      const auto number = detail::http_version_number(part[2]);
      if ((number && *number != 0) || part[2] == "latest") {
        r_.version = number ? *number : 0;
        r_.route = parts == 3             ? http_route::image
                   : part[3] == "confirm" ? http_route::confirm
                   : part[3] == "cancel"  ? http_route::cancel
                                          : http_route::nothing;
      }
    }
    return question == target.npos ? std::uint16_t{more} : read_query(query);
  }
  static constexpr bool is_plain(char c) noexcept {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
           c == '_' || c == '~';
  }
  std::uint16_t read_query(std::string_view query) noexcept {
    while (!query.empty()) {
      const std::size_t end = query.find('&');
      const std::string_view one = query.substr(0, end);
      query.remove_prefix(end == query.npos ? query.size() : end + 1);
      for (const char c : one)
        if (!is_plain(c) && c != '=') return 400;
      if (one.substr(0, 4) != "key=") continue;  // what others append, against caches or for their statistics
      if (r_.key_in_url) return 400;
      r_.key_in_url = true;
      if (const auto ok = take_key(one.substr(4)); ok != more) return ok;
    }
    return more;
  }
  std::uint16_t take_key(std::string_view digits) noexcept {
    if (r_.key_given) return 400;  // two keys: which one would count?
    r_.key_given = true;
    if (const auto key = parse_ref_id(digits)) r_.key = *key;
    return more;
  }

  enum : std::uint32_t {
    seen_host = 1,
    seen_length = 2,
    seen_encoding = 4,
    seen_authorization = 8,
    seen_range = 16,
    seen_if_range = 32,
    seen_recipient = 64,
    seen_expect = 128,
    seen_digest = 256
  };
  bool again(std::uint32_t which) noexcept { return (std::exchange(seen_, seen_ | which) & which) != 0; }

  std::uint16_t field(std::string_view text) noexcept {
    if (++fields_ > most_fields) return 431;
    if (text.front() == ' ' || text.front() == '\t') return 400;  // a folded line
    const std::size_t colon = text.find(':');
    if (colon == text.npos || colon == 0) return 400;
    const std::string_view name = text.substr(0, colon), value = detail::http_trimmed(text.substr(colon + 1));
    for (const char c : name)
      if (!detail::is_http_token(c)) return 400;  // also a space before the colon
    const auto is = [&](std::string_view known) { return detail::http_same(name, known); };
    if (is("host")) return again(seen_host) || !is_host(value) ? 400 : more;
    if (is("content-length")) {
      const auto n = detail::http_number(value);
      if (again(seen_length) || !n) return 400;
      r_.body_bytes = *n;
    } else if (is("transfer-encoding")) {
      if (again(seen_encoding)) return 400;
    } else if (is("connection")) {
      detail::http_elements(value, [&](std::string_view one) {
        if (detail::http_same(one, "close")) closes_ = true;
        if (detail::http_same(one, "keep-alive") && r_.old) r_.keep_alive = true;
      });
    } else if (is("authorization")) {
      if (again(seen_authorization)) return 400;
      const std::size_t space = value.find(' ');
      if (space != value.npos && detail::http_same(value.substr(0, space), "bearer"))
        return take_key(detail::http_trimmed(value.substr(space)));
    } else if (is("range")) {
      if (again(seen_range)) return 400;
      r_.range = range_of(value);
    } else if (is("if-range")) {
      if (again(seen_if_range)) return 400;
      r_.if_range_given = true;
      if (const auto tag = detail::http_tag(value)) r_.if_range = *tag;
    } else if (is("if-match")) {
      add_tags(r_.if_match, value, false);
    } else if (is("if-none-match")) {
      add_tags(r_.if_none_match, value, true);
    } else if (is("expect")) {
      if (again(seen_expect) || !detail::http_same(value, "100-continue")) return 417;
      r_.expects_continue = !r_.old;
    } else if (is("tensorpull-recipient")) {
      if (again(seen_recipient) || value.empty() || value.size() > 128) return 400;
      r_.recipient = recipient_named(value);
    } else if (is("repr-digest")) {
      if (again(seen_digest)) return 400;
      detail::http_elements(value, [&](std::string_view one) {
        if (one.substr(0, 5) != "xxh3=") return;
        if (const auto given = detail::http_digest(one.substr(5))) r_.digest = *given, r_.digest_given = true;
      });
    }
    return more;
  }
  static bool is_host(std::string_view value) noexcept {
    for (const char c : value)
      if (!is_plain(c) && std::string_view(":[]").find(c) == std::string_view::npos) return false;
    return true;
  }
  static void add_tags(http_tags& to, std::string_view list, bool weak_too) noexcept {
    to.given = true;
    detail::http_elements(list, [&](std::string_view one) {
      if (one == "*") to.any = true;
      if (weak_too && one.substr(0, 2) == "W/") one.remove_prefix(2);
      if (const auto tag = detail::http_tag(one); tag && to.count < http_tags::most) to.tags[to.count++] = *tag;
    });
  }
  static http_range range_of(std::string_view value) noexcept {
    using kind = http_range::kind;
    const std::size_t equals = value.find('=');
    if (equals == value.npos) return {kind::wrong, 0, 0};
    if (!detail::http_same(detail::http_trimmed(value.substr(0, equals)), "bytes")) return {};
    http_range out;
    std::size_t count = 0;
    std::uint64_t end = 0;  // no range may begin before it: several that overlap, or go backwards, are refused
    detail::http_elements(value.substr(equals + 1), [&](std::string_view one) {
      const http_range r = one_range(one);
      if (++count == 1) out = r;
      if (r.is == kind::wrong || count > 16 || (r.is == kind::suffix && count > 1) ||
          (r.is == kind::from_to && count > 1 && r.first <= end))
        out.is = kind::wrong;
      end = r.is == kind::from_to ? r.last : ~std::uint64_t{0};
    });
    if (count == 0) return {kind::wrong, 0, 0};
    if (count > 1 && out.is != kind::wrong) return {};  // the whole, once
    return out;
  }
  static http_range one_range(std::string_view one) noexcept {
    using kind = http_range::kind;
    const std::size_t dash = one.find('-');
    if (dash == one.npos) return {kind::wrong, 0, 0};
    const std::string_view from = one.substr(0, dash), to = one.substr(dash + 1);
    const auto first = detail::http_number(from), last = detail::http_number(to);
    if (from.empty()) return last ? http_range{kind::suffix, 0, *last} : http_range{kind::wrong, 0, 0};
    if (!first || (!to.empty() && !last)) return {kind::wrong, 0, 0};
    const http_range r{kind::from_to, *first, last ? *last : ~std::uint64_t{0}};
    return r.last < r.first ? http_range{kind::wrong, 0, 0} : r;
  }

  std::uint16_t end() noexcept {
    if (!(seen_ & seen_host) && !r_.old) return 400;
    if (seen_ & seen_encoding)
      return seen_ & seen_length || r_.old ? 400 : 411;  // a body without a length is not taken; two lengths are an
                                                         // attack
    const bool post = r_.method == http_method::post;
    if (!post && r_.body_bytes != 0) return 400;  // a body that others would not skip
    if (post && !(seen_ & seen_length)) return 411;
    if (r_.body_bytes > most_body_bytes) return 413;
    if (closes_) r_.keep_alive = false;
    const bool settles = r_.route == http_route::confirm || r_.route == http_route::cancel;
    if (r_.route != http_route::nothing && r_.method != http_method::options && post != settles) return 405;
    return whole;
  }

  http_request r_{};
  std::size_t head_bytes_ = 0, fields_ = 0;
  std::uint32_t seen_ = 0;
  bool begun_ = false, blank_ = false, closes_ = false, takes_options_ = false;
};

}  // namespace tensorpull
