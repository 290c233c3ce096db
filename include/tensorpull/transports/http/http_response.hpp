// Reads the head of a server's answer with Boost.Beast's parser, and keeps what a pull needs of it. Nothing is
// allocated but a redirect's Location.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/transports/http/detail/pull_text.hpp>

#include <boost/beast/http/basic_parser.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tensorpull {

/// What the head of an answer says, as far as a pull looks at it.
struct http_head {
  unsigned status = 0;                          ///< 100 to 599
  bool has_length = false;                      ///< whether Content-Length was there
  std::uint64_t length = 0;                     ///< Content-Length
  bool chunked = false;                         ///< the body comes in pieces with lengths of their own
  bool persists = false;                        ///< the connection can be used again behind the body
  bool encoded = false;                         ///< Content-Encoding is another than identity
  bool multipart = false;                       ///< several ranges, which nobody has asked for
  bool has_range = false;                       ///< whether Content-Range was there and could be read
  detail::content_range range{};                ///< Content-Range
  detail::bounded_text<256> etag{};               ///< a strong ETag with its quotes; empty: there is none
  detail::bounded_text<32> modified{};  ///< Last-Modified, if it is strong (RFC 9110, 8.8.2.2): the answer's Date is a
                                        ///< minute later; else empty
  bool tagged = false;  ///< whether there was an ETag, be it weak
  detail::bounded_text<32> dated{};  ///< Last-Modified as it was written, strong or not
  detail::repr_digest digest{};  ///< Repr-Digest
  std::uint64_t retry_after_s = 0;  ///< Retry-After in seconds; a date counts as seconds after the answer's Date
  std::string location{};  ///< of a redirect
};

/// Reads one head.
class http_response_reader : private boost::beast::http::basic_parser<false> {
  using base = boost::beast::http::basic_parser<false>;
  using text = boost::beast::string_view;
  using failed = boost::beast::error_code;

 public:
  /// Bytes of the longest head.
  static constexpr std::size_t most_bytes = 16 * 1024;

  http_response_reader() {
    header_limit(most_bytes);
    body_limit(~std::uint64_t{0});  // what a body may be is decided by who asked for it
  }

  /// Reads a head from its first byte on. The number of its bytes; 0: it is not complete, and the next call has to have
  /// the same bytes and more. Errors: bad_frame: this is not HTTP/1, or says two things about its length; too_large: a
  /// head of more than most_bytes. The name is what is wrong.
  result<std::size_t> take(std::string_view bytes) noexcept {
    // Beast's parser would take a part of a head, and want the rest alone: it is given whole heads, and only what
    // begins like one is waited for.
    constexpr std::string_view begins = "HTTP/1.";
    if (bytes.substr(0, begins.size()) != begins.substr(0, bytes.size()))
      return failure(errc::bad_frame, 0, std::string_view("not HTTP/1"));
    const std::size_t end = bytes.find("\r\n\r\n", searched_);
    if (end == bytes.npos || end + 4 > most_bytes) {
      if (bytes.size() >= most_bytes) return failure(errc::too_large, bytes.size(), std::string_view("header fields"));
      searched_ = bytes.size() - std::min<std::size_t>(bytes.size(), 3);
      return std::size_t{0};
    }
    failed ec;
    std::size_t used = 0;
    try {
      used = put(boost::asio::const_buffer(bytes.data(), end + 4), ec);
    } catch (...) {
      return failure(errc::out_of_memory);
    }
    if (!ec && (!is_header_done() || used != end + 4)) wrong_ = "not HTTP/1";
    if (ec || wrong_ != nullptr)
      return failure(errc::bad_frame, 0, std::string_view(wrong_ != nullptr ? wrong_ : "not HTTP/1"));
    if (lengths_ > 1 || (lengths_ > 0 && encodings_ > 0) || encodings_ > 1)
      return failure(errc::bad_frame, 0, std::string_view("two lengths of one body"));
    if (encodings_ > 0 && !chunked()) return failure(errc::bad_frame, 0, std::string_view("Transfer-Encoding"));
    head_.chunked = chunked();
    head_.persists = keep_alive();
    if (modified_ && date_ && *date_ - *modified_ >= 60) (void)head_.modified.assign(modified_text_.view());
    if (retry_date_ && date_ && *retry_date_ > *date_)
      head_.retry_after_s = static_cast<std::uint64_t>(*retry_date_ - *date_);
    return used;
  }
  /// What was read.
  http_head& head() noexcept { return head_; }

 private:
  static std::string_view as_view(text t) noexcept { return {t.data(), t.size()}; }

  void on_request_impl(boost::beast::http::verb, text, text, int, failed&) override {}
  void on_response_impl(int code, text, int, failed&) override { head_.status = static_cast<unsigned>(code); }
  void on_field_impl(boost::beast::http::field name, text spelled, text said, failed&) override {
    using boost::beast::http::field;
    const std::string_view value = detail::trimmed(as_view(said));
    switch (name) {
      case field::content_length:
        ++lengths_;
        if (const auto n = detail::all_digits(value)) head_.has_length = true, head_.length = *n;
        else wrong_ = "Content-Length";
        break;
      case field::transfer_encoding: ++encodings_; break;
      case field::content_encoding: head_.encoded = head_.encoded || !is(value, "identity"); break;
      case field::content_type:
        head_.multipart = value.size() >= 20 && is(value.substr(0, 20), "multipart/byteranges");
        break;
      case field::content_range:
        if (std::exchange(ranged_, true)) wrong_ = "Content-Range";
        if (const auto r = detail::parse_content_range(value)) head_.range = *r, head_.has_range = true;
        break;
      case field::etag: take_etag(value); break;
      case field::last_modified:
        modified_ = detail::parse_http_date(value);
        if (modified_) (void)modified_text_.assign(value);
        (void)head_.dated.assign(value);
        break;
      case field::date: date_ = detail::parse_http_date(value); break;
      case field::retry_after:
        if (const auto s = detail::all_digits(value)) head_.retry_after_s = *s;
        else retry_date_ = detail::parse_http_date(value);
        break;
      case field::location: head_.location.assign(value); break;
      default:
        if (is(as_view(spelled), "repr-digest")) detail::add_repr_digest(value, head_.digest);
    }
  }
  void on_header_impl(failed&) override {}
  void on_body_init_impl(boost::optional<std::uint64_t> const&, failed&) override {}
  std::size_t on_body_impl(text, failed&) override { return 0; }
  void on_chunk_header_impl(std::uint64_t, text, failed&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, text, failed&) override { return 0; }
  void on_finish_impl(failed&) override {}

  static bool is(std::string_view value, std::string_view lower) noexcept {
    if (value.size() != lower.size()) return false;
    for (std::size_t i = 0; i < value.size(); ++i)
      if ((value[i] >= 'A' && value[i] <= 'Z' ? value[i] + ('a' - 'A') : value[i]) != lower[i]) return false;
    return true;
  }
  /// A weak one proves nothing about bytes (RFC 9110, 8.8.1). Two that differ prove nothing either.
  void take_etag(std::string_view value) noexcept {
    const bool strong = value.size() >= 2 && value.front() == '"' && value.back() == '"' &&
                        value.substr(1, value.size() - 2).find('"') == value.npos;
    const bool other = std::exchange(tagged_, true) && head_.etag.view() != value;
    head_.tagged = true;
    if (!strong || other || !head_.etag.assign(value)) head_.etag.clear();
  }

  http_head head_{};
  optional<std::int64_t> modified_{}, date_{}, retry_date_{};
  detail::bounded_text<32> modified_text_{};
  const char* wrong_ = nullptr;
  unsigned lengths_ = 0, encodings_ = 0;
  std::size_t searched_ = 0;  // no head ends before it
  bool ranged_ = false, tagged_ = false;
};

}  // namespace tensorpull
