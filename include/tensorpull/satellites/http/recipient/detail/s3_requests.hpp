// Requests to a store that speaks S3, one at a time: each is signed, and its answer is kept in memory.
#pragma once

#include <tensorpull/core/digits.hpp>
#include <tensorpull/core/sha256.hpp>
#include <tensorpull/satellites/http/recipient/detail/s3_answers.hpp>
#include <tensorpull/satellites/http/recipient/http_put.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace tensorpull::detail {

/// Text as a signature has it: each byte that is not unreserved (RFC 3986) as a percent sign and two capital digits.
inline std::string s3_encoded(std::string_view text, bool slashes) {
  std::string out;
  for (const char c : text) {
    if (is_alphanumeric(c) || std::string_view("-._~").find(c) != std::string_view::npos || (c == '/' && !slashes)) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    for (const char digit : {hex_digit(byte >> 4), hex_digit(byte)})
      out += digit >= 'a' ? static_cast<char>(digit - 'a' + 'A') : digit;
    out.insert(out.size() - 2, 1, '%');
  }
  return out;
}

class s3_requests final : http_taker {
 public:
  /// Borrows all of them.
  s3_requests(http_requests& requests, const http_put_options& options, std::string_view region,
              std::string_view session_token)
      : requests_(requests), options_(options), region_(region), session_token_(session_token), over_(1),
        signature_("aws:amz:" + std::string(region) + ":s3"),
        token_("X-Amz-Security-Token: " + std::string(session_token)) {}

  result<void> prepare() {
    if (const auto ok = requests_.prepare(); !ok) return ok;
    const bool region = !region_.empty() && region_.size() <= 64 &&
                        std::ranges::all_of(region_, [](char c) { return is_alphanumeric(c) || c == '-'; });
    if (!region) return failure(errc::invalid_argument, 0, std::string_view("region"));
    if (session_token_.size() > 16384 || !is_printable(session_token_))
      return failure(errc::invalid_argument, 0, std::string_view("session_token"));
    if (const auto* const curl = curl_version_info(CURLVERSION_NOW); curl->version_num < 0x075700)
      return failure(errc::unsupported_request, 0, std::string_view("libcurl before 7.87"));
    return {};
  }
  const http_url& origin() const noexcept { return requests_.origin(); }
  /// The body of the last answer, and its head.
  const std::string& answer() const noexcept { return answer_; }
  const http_head& head() const noexcept { return head_; }

  /// One request: `set(line)` makes it, and `body` is what it sends, if it sends a part of the image. Its answer is
  /// answer() and head(). Errors: those of the connection, and that of the answer.
  template <class Set>
  result<void> exchange(http_url url, std::string_view query, Set set, http_body* body = nullptr) {
    if (!query.empty()) (url.text += '?') += query;
    answer_.clear();
    rest_ = {};
    http_line& l = over_.first();
    if (const auto ok = requests_.begin(over_, l, *this, url); !ok) return ok;
    l.set(CURLOPT_AWS_SIGV4, signature_);
    if (!session_token_.empty()) l.add(token_.c_str());
    set(l);
    if (const auto ok = over_.start(l); !ok) return ok;
    auto asked = std::chrono::steady_clock::now();
    const auto ended = [&]() -> result<bool> {
      // a store may send spaces while it makes an object of parts, and not for ever
      const auto now = std::chrono::steady_clock::now();
      if (body != nullptr && !body->whole()) asked = now;
      if ((now - asked) / 10 > options_.timeout) return failure(errc::timed_out);
      if (l.now() != http_line::phase::ended) return false;
      if (const auto how = l.outcome(); !how) return failure(how.error());
      return true;
    };
    const auto moved = [&] { return std::pair(body != nullptr ? body->progress() : 0, answer_.size()); };
    const auto ok = await_line(over_, ended, moved, options_.timeout, options_.stop);
    const auto answered = l.answered();
    if (answered && *answered) head_ = l.head();
    over_.drop(l);
    if (body != nullptr && !body->outcome()) return body->outcome();
    // a refusal counts, even if the connection was lost behind it
    const bool refused = answered && *answered && head_.status >= 300 && is_passing(ok ? errc{} : ok.error().code);
    if (!ok && !refused) return ok;
    rest_ = head_.is_busy() ? back_off(options_.retry, busy_++, head_.wait) : head_.wait;
    return head_.status == 200 || head_.status == 204 ? result<void>{} : refusal(url);
  }
  /// The error of an answer, whose name begins with its status and the store's own word for it.
  result<void> refusal(const http_url& url) const {
    error e = error_of_status(head_.status, url);
    const auto code = s3_answer(answer_, "Error", "Code").value_or("");
    if (code.empty() || code.size() > 40 || !std::ranges::all_of(code, is_alphanumeric)) return failure(e);
    e.name = std::string_view(std::to_string(head_.status) + " " + code + " from " + std::string(url.address()));
    if (head_.status == 200)
      e.code = code == "InternalError" || code == "ServiceUnavailable" ? errc::connection_failed : errc::bad_request;
    if (code == "RequestTimeout") e.code = errc::timed_out;
    if (code == "BadDigest" || code == "IncompleteBody") e.code = errc::connection_lost;  // damaged on its way
    if (code == "SlowDown") e.code = errc::busy;
    return failure(e);
  }
  /// Tries it as often as the policy has it.
  template <class Once>
  result<void> tried(Once once) {
    const retry_state tries(options_.retry, options_.timeout);
    return keep_trying(once, tries, options_.stop, [&] { return rest_; });
  }
  result<void> get(const http_url& url, const std::string& query) {
    return tried([&] { return exchange(url, query, [&](http_line& l) { say_hash(l, {}); }); });
  }
  result<void> post(const http_url& url, const std::string& query, const std::string& text) {
    return exchange(url, query, [&](http_line& l) {
      l.set(CURLOPT_POST, 1L);
      l.set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(text.size()));
      l.set(CURLOPT_POSTFIELDS, text.c_str());
      l.add(text.empty() ? "Content-Type: application/octet-stream" : "Content-Type: application/xml");
      say_hash(l, text);
    });
  }
  static void say_hash(http_line& l, std::string_view text) {
    sha256_hash h;
    h.update(std::as_bytes(std::span(text)));
    l.add(("X-Amz-Content-Sha256: " + std::string(hex_digits(h.value()).view())).c_str());
  }

 private:
  static constexpr std::size_t most_answer_bytes = std::size_t{1} << 20;

  std::size_t take(http_line& l, std::span<const std::byte> bytes) noexcept override {
    if (answer_.size() + bytes.size() > most_answer_bytes) {
      l.refuse({errc::too_large, 0, answer_.size() + bytes.size(), std::string_view("answer")});
      return 0;
    }
    try {
      answer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    } catch (const std::bad_alloc&) {
      l.refuse({errc::out_of_memory, 0, 0, {}});
      return 0;
    }
    return bytes.size();
  }

  http_requests& requests_;
  const http_put_options& options_;
  std::string_view region_, session_token_;
  http_lines over_;
  std::string signature_, token_, answer_{};
  http_head head_{};
  std::chrono::milliseconds rest_{0};
  unsigned busy_ = 0;
};

}  // namespace tensorpull::detail
