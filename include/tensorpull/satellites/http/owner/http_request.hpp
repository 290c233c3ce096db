// Reads the head of one HTTP/1.1 request, line by line, and refuses whatever two readers might understand differently.
// No heap: what is not needed later is not kept. The parser is our own: it has no allocation at all, and needs a line
// and not a head in memory.
#pragma once

#include <tensorpull/core/digits.hpp>
#include <tensorpull/core/ids.hpp>
#include <tensorpull/satellites/http/detail/digests.hpp>
#include <tensorpull/satellites/http/owner/detail/head_lines.hpp>
#include <tensorpull/satellites/http/owner/detail/ranges.hpp>
#include <tensorpull/satellites/http/owner/http_password.hpp>

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
  files,    ///< /v1/NAME/VERSION/files: the image's header, which lists its tensors
  file,     ///< /v1/NAME/VERSION/files/PATH: the bytes of the tensor of that name
  metrics,  ///< /metrics
  status,  ///< /: a page for people
  status_json,  ///< /status.json
  health,   ///< /healthz
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

/// A request as far as an owner needs it.
struct http_request {
  http_method method = http_method::get;    ///< what is to be done
  http_route route = http_route::nothing;   ///< with what
  std::uint64_t version = 0;                ///< of the path, or of the key; 0: latest
  ref_id key{};  ///< of the Authorization field or of the URL; none: there was none that could be one
  bool key_given = false;  ///< there was a key, perhaps one that could not be one
  bool key_in_url = false;  ///< it stood in the URL
  bool may_look = false;  ///< the Authorization field has the password of the status page
  recipient_id recipient{};  ///< the recipient that asks; none: the connection stands for it
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
  std::uint8_t file_bytes = 0;  ///< of `file_text`
  std::array<char, 255> file_text{};  ///< PATH, without percent signs

  /// Whether it is for an image, or for a part of one.
  constexpr bool gives() const noexcept {
    return route == http_route::image || route == http_route::files || route == http_route::file;
  }
  /// PATH, if the route is of a file.
  constexpr std::string_view file() const noexcept { return {file_text.data(), std::size_t{file_bytes}}; }
};

namespace detail {

/// A strong entity tag that could be ours.
constexpr optional<std::uint64_t> parse_own_tag(std::string_view s) noexcept {
  if (s.size() != 18 || s.front() != '"' || s.back() != '"') return {};
  return http_version_number(s.substr(1, 16));
}

/// Reads the body of a confirmation: `digest=` and 16 digits, or nothing. False: neither, or another digest than the
/// one that was given in a field.
constexpr bool parse_confirmation(std::string_view body, std::uint64_t& digest, bool& given) noexcept {
  if (body.empty()) return true;
  const auto n = body.starts_with("digest=") ? http_version_number(body.substr(7)) : optional<std::uint64_t>();
  if (!n || (given && *n != digest)) return false;
  digest = *n;
  given = true;
  return true;
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

  /// `takes_options`: the method OPTIONS is read like the others, and not refused. `status`: the password of the status
  /// page, borrowed; without it there is no such page.
  constexpr explicit http_request_reader(bool takes_options = false, const http_password& status = nobody) noexcept
      : status_(&status), takes_options_(takes_options) {}

  /// The next line. `more`, `whole`, or a status: 400, 405, 411, 413, 414, 417, 431, 501 or 505.
  std::uint16_t line(std::string_view text) noexcept {
    head_bytes_ += text.size() + 2;
    if (head_bytes_ > most_head_bytes) return 431;
    if (!detail::is_line_text(text)) return 400;  // also NUL and a bare CR
    if (begun_) return text.empty() ? end() : field(text);
    if (text.empty())  // one is left over by some clients after a body
      return std::exchange(blank_, true) ? std::uint16_t{400} : std::uint16_t{more};
    begun_ = true;
    return first(text);
  }
  /// Valid once line() said `whole`.
  const http_request& request() const noexcept { return r_; }

 private:
  std::uint16_t first(std::string_view text) noexcept {
    const std::size_t a = text.find(' '), b = text.rfind(' ');
    if (a == text.npos || a == 0 || b == a) return 400;
    const std::string_view method = text.substr(0, a), target = text.substr(a + 1, b - a - 1),
                           version = text.substr(b + 1);
    for (const char c : method)
      if (!detail::is_http_token(c)) return 400;
    const auto number = detail::parse_http_version(version);
    if (!number) return 400;
    if (*number < 10 || *number > 19) return 505;
    r_.old = *number == 10;
    if (method == "GET") r_.method = http_method::get;
    else if (method == "HEAD") r_.method = http_method::head;
    else if (method == "POST") r_.method = http_method::post;
    else if (takes_options_ && method == "OPTIONS") r_.method = http_method::options;
    else return is_refused_method(method) ? 405 : 501;
    return path(target);
  }

  static constexpr bool is_refused_method(std::string_view method) noexcept {
    for (const std::string_view known : {"PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"})
      if (method == known) return true;
    return false;
  }
  /// Only what our own URLs consist of: nothing that one reader decodes and another does not.
  std::uint16_t path(std::string_view target) noexcept {
    if (target.empty() || target.front() != '/') return 400;  // the form with a host, too: this is no proxy
    const std::size_t question = target.find('?');
    std::string_view rest = target.substr(0, question),
                     query = question == target.npos ? std::string_view() : target.substr(question + 1);
    std::array<std::string_view, 4> part{};
    std::size_t parts = 0;
    bool fits = true;
    rest.remove_prefix(1);
    for (bool last = false; !last;) {
      const std::size_t slash = rest.find('/');
      last = slash == rest.npos;
      const std::string_view one = rest.substr(0, slash);
      if (one == "." || one == "..") return 400;
      const bool of_file = parts == part.size() && part[3] == "files";
      for (const char c : one)
        if (!is_plain(c) && !(of_file && std::string_view("%!$&'()*+,;=:@").find(c) != std::string_view::npos))
          return 400;
      if (parts == part.size()) fits = false;
      else part[parts++] = one;
      if (!last) rest.remove_prefix(slash + 1);
    }
    if (fits && parts == 1 && part[0] == "metrics") r_.route = http_route::metrics;
    if (fits && parts == 1 && part[0] == "healthz") r_.route = http_route::health;
    if (*status_ && parts == 1 && part[0].empty()) r_.route = http_route::status;
    if (*status_ && parts == 1 && part[0] == "status.json") r_.route = http_route::status_json;
    if ((fits || part[3] == "files") && parts >= 3 && part[0] == "v1" && !part[1].empty() && part[1].size() <= 64) {
      const auto number = detail::http_version_number(part[2]);
      if ((number && *number != 0) || part[2] == "latest") {
        r_.version = number ? *number : 0;
        if (parts == 3) r_.route = http_route::image;
        else if (part[3] == "confirm") r_.route = http_route::confirm;
        else if (part[3] == "cancel") r_.route = http_route::cancel;
        else if (part[3] == "files" && !files({part[3].data() + 5, target.substr(0, question).end()})) return 400;
      }
    }
    return question == target.npos ? std::uint16_t{more} : read_query(query);
  }
  /// Takes what follows "files". A longer path than is kept names nothing. What a percent sign stands for is looked up
  /// among the names, and leads nowhere else. False: a percent sign without two digits.
  constexpr bool files(std::string_view behind) noexcept {
    if (behind.empty()) r_.route = http_route::files;
    if (behind.size() < 2) return true;
    std::size_t n = 0;
    for (std::size_t i = 1; i < behind.size(); ++i, ++n) {
      char c = behind[i];
      if (c == '%') {
        const auto octet = detail::percent_octet(behind, i);
        if (!octet) return false;
        c = *octet;
        i += 2;
      }
      if (n < r_.file_text.size()) r_.file_text[n] = c;
    }
    if (n > r_.file_text.size()) return true;
    r_.file_bytes = static_cast<std::uint8_t>(n);
    r_.route = http_route::file;
    return true;
  }
  static constexpr bool is_plain(char c) noexcept {
    return detail::is_alphanumeric(c) || c == '-' || c == '.' || c == '_' || c == '~';
  }
  std::uint16_t read_query(std::string_view query) noexcept {
    while (!query.empty()) {
      const std::size_t end = query.find('&');
      const std::string_view one = query.substr(0, end);
      query.remove_prefix(end == query.npos ? query.size() : end + 1);
      constexpr std::string_view others = "%+,;:@/?!$'()*";  // of a query (RFC 3986, 3.4)
      for (const char c : one)
        if (!is_plain(c) && c != '=' && others.find(c) == others.npos) return 400;
      if (!one.starts_with("key=")) continue;  // what others append, against caches or for their statistics
      if (r_.key_in_url) return 400;
      r_.key_in_url = true;
      if (const auto ok = take_key(one.substr(4)); ok != more) return ok;
    }
    return more;
  }
  std::uint16_t take_key(std::string_view digits) noexcept {
    if (r_.key_given) return 400;  // two keys: which one would count?
    r_.key_given = true;
    if (const auto key = parse_reference(digits)) r_.key = key->id, version_of_key_ = key->version;
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
    const auto f = detail::parse_field(text);
    if (!f) return 400;
    const std::string_view value = f->value;
    const auto is = [&](std::string_view known) { return f->is(known); };
    if (is("host")) return again(seen_host) || !is_host(value) ? 400 : more;
    if (is("content-length")) {
      const auto n = detail::decimal_number(value);
      if (again(seen_length) || !n) return 400;
      r_.body_bytes = *n;
    } else if (is("transfer-encoding")) {
      if (again(seen_encoding)) return 400;
    } else if (is("connection")) {
      wish_.add(value);
    } else if (is("authorization")) {
      if (again(seen_authorization)) return 400;
      const std::size_t space = value.find(' ');
      if (space != value.npos && detail::same_but_for_case(value.substr(0, space), "bearer"))
        return take_key(detail::trimmed(value.substr(space)));
      r_.may_look = *status_ && space != value.npos && detail::same_but_for_case(value.substr(0, space), "basic") &&
                    status_->is_in_basic(detail::trimmed(value.substr(space)));
    } else if (is("range")) {
      if (again(seen_range)) return 400;
      r_.range = detail::parse_range(value);
    } else if (is("if-range")) {
      if (again(seen_if_range)) return 400;
      r_.if_range_given = true;
      if (const auto tag = detail::parse_own_tag(value)) r_.if_range = *tag;
    } else if (is("if-match")) {
      add_tags(r_.if_match, value, false);
    } else if (is("if-none-match")) {
      add_tags(r_.if_none_match, value, true);
    } else if (is("expect")) {
      if (again(seen_expect) || !detail::same_but_for_case(value, "100-continue")) return 417;
      r_.expects_continue = !r_.old;
    } else if (is("tensorpull-recipient")) {
      if (again(seen_recipient) || value.empty() || value.size() > 128) return 400;
      r_.recipient = recipient_named(value);
    } else if (is("repr-digest")) {
      if (again(seen_digest)) return 400;
      detail::repr_digest given;
      given.add(value);
      r_.digest = given.xxh3;
      r_.digest_given = given.ours;
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
    detail::for_each_element(list, [&](std::string_view one) {
      if (one == "*") to.any = true;
      if (weak_too && one.substr(0, 2) == "W/") one.remove_prefix(2);
      if (const auto tag = detail::parse_own_tag(one); tag && to.count < http_tags::most) to.tags[to.count++] = *tag;
    });
  }

  std::uint16_t end() noexcept {
    if (!(seen_ & seen_host) && !r_.old) return 400;
    // a body without a length is not taken; two lengths are an attack
    if (seen_ & seen_encoding) return seen_ & seen_length || r_.old ? 400 : 411;
    const bool post = r_.method == http_method::post;
    if (!post && r_.body_bytes != 0) return 400;  // a body that others would not skip
    if (post && !(seen_ & seen_length)) return 411;
    if (r_.body_bytes > most_body_bytes) return 413;
    r_.keep_alive = wish_.persists(r_.old);
    if (r_.version == 0) r_.version = version_of_key_;
    else if (version_of_key_ != 0 && version_of_key_ != r_.version) r_.key = {};  // there is no such thing
    const bool settles = r_.route == http_route::confirm || r_.route == http_route::cancel;
    if (r_.route != http_route::nothing && r_.method != http_method::options && post != settles) return 405;
    return whole;
  }

  static constexpr http_password nobody{};

  http_request r_{};
  const http_password* status_;
  std::size_t head_bytes_ = 0, fields_ = 0;
  std::uint32_t seen_ = 0;
  std::uint64_t version_of_key_ = 0;  // 0: it says none
  detail::connection_wish wish_{};
  bool begun_ = false, blank_ = false, takes_options_ = false;
};

}  // namespace tensorpull
