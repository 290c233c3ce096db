// What the answers of an HTTP owner say: status lines, fields that all of them have, refusals.
#pragma once

#include <tensorpull/framing/frame.hpp>
#include <tensorpull/satellites/http/owner/detail/status_style.hpp>
#include <tensorpull/satellites/http/owner/detail/text_writer.hpp>
#include <tensorpull/satellites/http/owner/http_origin.hpp>
#include <tensorpull/satellites/http/owner/http_request.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <ctime>
#include <span>
#include <string_view>

namespace tensorpull::detail {

constexpr std::string_view reason_of(std::uint16_t status) noexcept {
  switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 206: return "Partial Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 409: return "Conflict";
    case 410: return "Gone";
    case 411: return "Length Required";
    case 412: return "Precondition Failed";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 416: return "Range Not Satisfiable";
    case 417: return "Expectation Failed";
    case 431: return "Request Header Fields Too Large";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    case 505: return "HTTP Version Not Supported";
    default: return "Internal Server Error";
  }
}

/// Whether it asks for what is told to whoever runs the owner, and to no web page of another origin.
constexpr bool is_for_the_operator(const http_request& q) noexcept {
  return q.route == http_route::metrics || q.route == http_route::status || q.route == http_route::status_json;
}
/// The status line, and what every answer has. `pages`: which web pages may read it; the same whatever the request
/// says: then caches need no `Vary: Origin` (the Fetch standard, CORS protocol and HTTP caches).
inline void begin_answer(text_writer& text, std::uint16_t status, const http_request& q, bool closes,
                         const http_origin& pages) noexcept {
  text << "HTTP/1.1 " << std::uint64_t{status} << " " << reason_of(status) << "\r\nDate: ";
  text.date(std::time(nullptr)) << "\r\n";
  if (closes) text << "Connection: close\r\n";
  else if (q.old) text << "Connection: keep-alive\r\n";
  if (pages && !is_for_the_operator(q))
    text << "Access-Control-Allow-Origin: " << pages.text()
         << "\r\nAccess-Control-Expose-Headers: Accept-Ranges, Content-Range, ETag, Repr-Digest, Retry-After\r\n";
}
/// What a browser asks before it sends a page's request. It says nothing about what is published, since such a request
/// has no key.
inline constexpr std::string_view browser_fields =
    "Access-Control-Allow-Methods: GET, HEAD, POST\r\n"
    "Access-Control-Allow-Headers: Authorization, Content-Type, If-Match, If-None-Match, If-Range, Range, Repr-Digest, "
    "Tensorpull-Recipient\r\n"
    "Access-Control-Max-Age: 7200\r\nCache-Control: no-store\r\n";

/// The entity tag, and what caches may do. `shared`: those of many users may keep the image.
inline void add_validators(text_writer& text, const http_request& q, std::uint64_t version, bool shared) noexcept {
  (text << "ETag: \"").hex(version) << "\"\r\nCache-Control: ";
  if (q.key_in_url) {
    text << "no-store\r\n";
    return;
  }
  if (q.version == 0) text << "no-cache\r\n";
  else text << (shared ? "public" : "private") << ", max-age=31536000, immutable\r\n";
  text << "Vary: Authorization\r\n";  // a cache gives what it holds only to clients that show the same key
}

/// What a browser may do with a status page: show it, with its own style alone, and to nobody else.
inline void add_page_fields(text_writer& text, std::string_view type) noexcept {
  text << "Content-Type: " << type
       << "\r\nCache-Control: no-store\r\nContent-Security-Policy: default-src 'none'; style-src 'sha256-"
       << std::string_view(status_style_digest.data(), status_style_digest.size())
       << "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\nX-Content-Type-Options: nosniff\r\n"
          "Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n";
}

/// A refusal in a line of text.
struct http_refusal {
  std::uint16_t code = 400;
  std::string_view line{};
};
/// What an owner says, as HTTP says it. A key that is not known and one that may not be used are the same.
constexpr http_refusal refusal_for(status why) noexcept {
  switch (why) {
    case status::unknown_reference: return {404, "there is nothing here\n"};
    case status::stale: return {404, "another version is published\n"};
    case status::withdrawn:
    case status::ended: return {410, "it is not published any more\n"};
    case status::unreadable: return {410, "it cannot be read any more\n"};
    case status::already_final: return {410, "this recipient has completed it\n"};
    case status::busy: return {503, "too many at a time\n"};
    default: return {};
  }
}

/// The same of a confirmation that was taken as `how`.
constexpr http_refusal answer_to_confirmation(status how, bool verified) noexcept {
  if (how == status::digest_mismatch) return {409, "digest_mismatch\n"};
  if (how != status::ok) return {409, "this recipient has ended otherwise\n"};
  return {200, verified ? "completed\n" : "completed_unverified\n"};
}

/// The fields of an answer of one line of text. `of_operator`: it is refused to somebody who is not the operator.
inline void add_line_fields(text_writer& text, std::uint16_t status, bool of_operator, std::size_t bytes) noexcept {
  if (status == 401)
    text << "WWW-Authenticate: "
         << (of_operator ? "Basic realm=\"tensorpull\", charset=\"UTF-8\"\r\n" : "Bearer realm=\"tensorpull\"\r\n");
  if (status == 405) text << "Allow: GET, HEAD, POST\r\n";
  if (status == 503) text << "Retry-After: 1\r\n";
  text << "Content-Type: text/plain\r\nCache-Control: no-store\r\nContent-Length: " << std::uint64_t{bytes} << "\r\n";
}

inline constexpr std::string_view not_every_byte =
    "not every byte of this version was sent to this recipient, as far as is known: a recipient that uses several "
    "connections names itself in Tensorpull-Recipient\n";

/// An answer's head, and a line behind it, on their way out.
class outgoing_text {
 public:
  /// Begins a head; finish() ends it.
  text_writer begin() noexcept {
    head_size_ = sent_ = 0;
    return text_writer(head_);
  }
  void finish(const text_writer& head) noexcept { head_size_ = head.text().size(); }

  bool empty() const noexcept { return rest().empty(); }
  /// Whether some of it has left.
  bool begun() const noexcept { return sent_ > 0; }
  std::span<const char> rest() const noexcept { return std::span(head_).subspan(sent_, head_size_ - sent_); }
  /// These bytes have left. Returns how many of them were not of this text.
  std::size_t sent(std::size_t n) noexcept {
    const std::size_t of_this = std::min(n, rest().size());
    sent_ += of_this;
    return n - of_this;
  }

 private:
  std::array<char, 896> head_;
  std::size_t head_size_ = 0, sent_ = 0;  // of the head
};

}  // namespace tensorpull::detail
