// Reads the head of a server's answer, and keeps what a pull needs of it. Nothing is allocated but a redirect's
// Location.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/satellites/http/text/detail/dates.hpp>
#include <tensorpull/satellites/http/text/detail/digests.hpp>
#include <tensorpull/satellites/http/text/detail/head_lines.hpp>
#include <tensorpull/satellites/http/text/detail/ranges.hpp>
#include <tensorpull/satellites/http/text/detail/text_writer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace tensorpull {

/// What the head of an answer says, as far as a pull looks at it.
struct http_head {
  unsigned status = 0;                          ///< 100 to 999
  bool has_length = false;                      ///< whether Content-Length was there
  std::uint64_t length = 0;                     ///< Content-Length
  bool chunked = false;                         ///< the body comes in pieces with lengths of their own
  bool persists = false;                        ///< the connection can be used again behind the body
  bool encoded = false;                         ///< Content-Encoding is another than identity
  bool multipart = false;                       ///< several ranges, which nobody has asked for
  bool has_range = false;                       ///< whether Content-Range was there and could be read
  detail::content_range range{};                ///< Content-Range
  bool knows_ranges = false;                    ///< Accept-Ranges says that bytes can be asked for
  detail::bounded_text<256> etag{};  ///< a strong ETag with its quotes; empty: there is none
  /// Last-Modified, if it is strong (RFC 9110, 8.8.2.2): the answer's Date is a minute later; else empty
  detail::bounded_text<32> modified{};
  bool tagged = false;  ///< whether there was an ETag, be it weak
  detail::bounded_text<32> dated{};  ///< Last-Modified as it was written, strong or not
  detail::repr_digest digest{};  ///< Repr-Digest
  std::uint64_t retry_after_s = 0;  ///< Retry-After in seconds; a date counts as seconds after the answer's Date
  std::string location{};  ///< of a redirect
};

/// Reads one head, line by line as it comes.
class http_response_reader {
 public:
  /// Bytes of the longest head.
  static constexpr std::size_t most_bytes = 16 * 1024;

  /// Reads a head from its first byte on. The number of its bytes; 0: it is not complete, and the next call has to have
  /// the same bytes and more. Errors: bad_frame: this is not HTTP/1, or says two things about its length; too_large: a
  /// head of more than most_bytes; out_of_memory. The name is what is wrong.
  result<std::size_t> take(std::string_view bytes) noexcept {
    constexpr std::string_view begins = "HTTP/1.";
    if (bytes.substr(0, begins.size()) != begins.substr(0, bytes.size()))
      return failure(errc::bad_frame, 0, std::string_view(no_http));
    while (!whole_) {
      const detail::cut_line line = detail::first_line(bytes.substr(read_));
      if (line.is == detail::cut_line::kind::none && bytes.size() < most_bytes) return std::size_t{0};
      if (line.is == detail::cut_line::kind::none || read_ + line.bytes > most_bytes)
        return failure(errc::too_large, bytes.size(), std::string_view("header fields"));
      read_ += line.bytes;
      if (const auto ok = read(line); !ok) return failure(ok.error());
    }
    return read_;
  }
  /// What was read.
  http_head& head() noexcept { return head_; }

 private:
  static constexpr const char* no_http = "not HTTP/1";

  result<void> read(const detail::cut_line& line) noexcept {
    const char* wrong = no_http;
    try {
      if (line.is == detail::cut_line::kind::whole && detail::is_line_text(line.text)) {
        if (head_.status == 0) wrong = read_status(line.text);
        else if (line.text.empty()) wrong = end();
        else if (const auto f = detail::parse_field(line.text)) wrong = read_field(*f);
      }
    } catch (...) {
      return failure(errc::out_of_memory);
    }
    if (wrong != nullptr) return failure(errc::bad_frame, 0, std::string_view(wrong));
    return {};
  }

  // What is wrong; null: nothing.
  const char* read_status(std::string_view line) noexcept {
    const auto version = detail::parse_http_version(line.substr(0, 8));
    const auto status = detail::decimal_number(line.substr(std::min<std::size_t>(9, line.size()), 3));
    if (line.size() < 13 || line[8] != ' ' || line[12] != ' ' || !status || *status < 100) return no_http;
    if (!version || (*version != 10 && *version != 11)) return no_http;
    old_ = *version == 10;
    head_.status = static_cast<unsigned>(*status);
    return nullptr;
  }
  const char* read_field(const detail::http_field& f) {
    const std::string_view value = f.value;
    if (f.is("content-length")) return read_length(value);
    if (f.is("transfer-encoding")) {
      if (std::exchange(head_.chunked, true) || !detail::same_but_for_case(value, "chunked"))
        return "Transfer-Encoding";
    } else if (f.is("content-encoding")) {
      head_.encoded = head_.encoded || !detail::same_but_for_case(value, "identity");
    } else if (f.is("content-type")) {
      head_.multipart = detail::same_but_for_case(value.substr(0, 20), "multipart/byteranges");
    } else if (f.is("content-range")) {
      if (std::exchange(ranged_, true)) return "Content-Range";
      const auto r = detail::parse_content_range(value);
      head_.has_range = r.has_value();
      head_.range = *r;
    } else if (f.is("accept-ranges")) {
      head_.knows_ranges = detail::same_but_for_case(value, "bytes");
    } else if (f.is("etag")) {
      take_etag(value);
    } else if (f.is("last-modified")) {
      modified_ = detail::parse_http_date(value);
      (void)head_.dated.assign(value);
    } else if (f.is("date")) {
      date_ = detail::parse_http_date(value);
    } else if (f.is("retry-after")) {
      retry_date_ = detail::parse_http_date(value);
      if (const auto s = detail::decimal_number(value)) head_.retry_after_s = *s;
    } else if (f.is("connection") || f.is("proxy-connection")) {
      wish_.add(value);
    } else if (f.is("repr-digest")) {
      head_.digest.add(value);
    } else if (f.is("location")) {
      head_.location.assign(value);
    }
    return nullptr;
  }
  const char* read_length(std::string_view value) noexcept {
    const auto n = detail::decimal_number(value);
    if (!n || *n == detail::beyond_64_bits) return "Content-Length";
    if (std::exchange(head_.has_length, true)) return "two lengths of one body";
    head_.length = *n;
    return nullptr;
  }
  const char* end() noexcept {
    whole_ = true;
    if (head_.chunked && head_.has_length) return "two lengths of one body";
    // a body without a length ends with its connection
    const bool ends = head_.chunked || head_.has_length || head_.status < 200 || head_.status == 204 ||
                      head_.status == 304;
    head_.persists = ends && wish_.persists(old_);
    if (modified_ && date_ && *date_ - *modified_ >= 60) head_.modified = head_.dated;
    if (retry_date_ && date_ && *retry_date_ > *date_)
      head_.retry_after_s = static_cast<std::uint64_t>(*retry_date_ - *date_);
    return nullptr;
  }
  /// A weak one proves nothing about bytes (RFC 9110, 8.8.1). Two that differ prove nothing either.
  void take_etag(std::string_view value) noexcept {
    const bool strong = value.size() >= 2 && value.front() == '"' && value.back() == '"' &&
                        value.substr(1, value.size() - 2).find('"') == value.npos;
    const bool other = std::exchange(head_.tagged, true) && head_.etag.view() != value;
    if (!strong || other || !head_.etag.assign(value)) head_.etag.clear();
  }

  http_head head_{};
  optional<std::int64_t> modified_{}, date_{}, retry_date_{};
  detail::connection_wish wish_{};
  std::size_t read_ = 0;
  bool old_ = false, whole_ = false, ranged_ = false;
};

}  // namespace tensorpull
