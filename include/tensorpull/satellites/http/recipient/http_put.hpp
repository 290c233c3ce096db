// Sends an image to an object store, or to any server that takes PUT. It needs libcurl.
#pragma once

#include <tensorpull/satellites/http/recipient/detail/http_body.hpp>
#include <tensorpull/satellites/http/recipient/detail/http_requests.hpp>
#include <tensorpull/transports/blocking/tries.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string_view>
#include <utility>

namespace tensorpull {

/// How an image is sent.
struct http_put_options {
  /// How long a connection, an answer, and each 64 KiB may take.
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  /// How long the consent of the server is awaited before the body is sent (100 Continue): one that refuses the request
  /// is not sent gigabytes.
  std::chrono::milliseconds consent = std::chrono::seconds(1);
  /// Ends it; noticed within 0.1 s.
  stop_token stop{};
  /// How often to try again, from the first byte.
  retry_policy retry{};
  /// The digest that the image has to have (XXH3-64; image_version() computes it); 0: any. The last byte is held back
  /// until those that were sent have it: an image that changes meanwhile is not stored, since the server lacks a byte.
  std::uint64_t digest = 0;
};
/// The answer of the server.
struct http_put_receipt {
  unsigned status = 0;  ///< 200, 201 or 204
  std::uint64_t bytes = 0;  ///< of the body
  std::uint64_t digest = 0;  ///< XXH3-64 of the bytes that were sent
};

namespace detail {

class http_upload final : http_taker {
 public:
  /// Borrows all of them.
  http_upload(http_requests& requests, const source_view& image, const http_put_options& options)
      : requests_(requests), options_(options), body_(image, 0, image.schema->image_bytes, options.digest), over_(1) {}

  /// How long the server of the last try is left alone.
  std::chrono::milliseconds rest() const noexcept { return rest_; }
  /// One try. Errors: those of the connection, the server's refusal, unreadable (the image).
  result<http_put_receipt> put() {
    requests_.go_to(requests_.origin());
    rest_ = {};
    http_line& l = over_.first();
    bool consent = true;
    for (std::uint32_t redirects = 0;;) {
      if (const auto ok = ask(l, consent); !ok) return failure(ok.error());
      const auto answered = [&] { return l.answered(); };
      const auto moved = [&] { return body_.progress(); };
      if (const auto ok = await_line(over_, answered, moved, options_.timeout, options_.stop); !ok)
        return failure(body_.outcome() ? ok.error() : body_.outcome().error());
      const http_head h = l.head();
      over_.drop(l);
      if (h.status == 417 && std::exchange(consent, false)) continue;  // it, or a proxy, knows none, and has closed
      if (h.status == 307 || h.status == 308) {  // the others change what is asked
        auto next = requests_.next(h, redirects);
        if (!next) return failure(next.error());
        requests_.go_to(std::move(*next));
        continue;
      }
      rest_ = h.is_busy() ? back_off(options_.retry, busy_++, h.wait) : h.wait;
      if (h.status != 200 && h.status != 201 && h.status != 204)
        return failure(error_of_status(h.status, requests_.url()));
      if (!body_.whole())
        return failure(errc::unexpected_frame, body_.sent(), std::string_view("an answer before the end"));
      return http_put_receipt{h.status, body_.sent(), body_.digest()};
    }
  }

 private:
  result<void> ask(http_line& l, bool consent) {
    if (const auto ok = requests_.begin(over_, l, *this, requests_.url()); !ok) return ok;
    body_.attach(l, options_.consent);
    l.add("Content-Type: application/octet-stream");
    if (!consent) l.add("Expect:");
    return over_.start(l);
  }
  std::size_t take(http_line&, std::span<const std::byte>) noexcept override { return 0; }  // the head says enough

  http_requests& requests_;
  const http_put_options& options_;
  http_body body_;
  http_lines over_;
  unsigned busy_ = 0;  // how often the server was
  std::chrono::milliseconds rest_{0};
};

}  // namespace detail

/// Sends the image as one object, with its length, in pieces as the connection takes them. A signed URL is sent as it
/// is, and nothing is added that would be signed. `digest` of the address means nothing here. Errors: as those of
/// `http`; unreadable: the image cannot be read any more; digest_mismatch: it is not what `options.digest` says. Only
/// the server knows whether it has kept the bytes: a pull of them compares a digest.
inline result<http_put_receipt> http_put(const http_address& to, const source_view& image,
                                         const http_put_options& options = {}) noexcept {
  try {
    detail::http_requests requests(to, {});
    if (const auto ok = requests.prepare(); !ok) return failure(ok.error());
    detail::http_upload upload(requests, image, options);
    return detail::keep_trying([&] { return upload.put(); }, retry_state(options.retry, options.timeout), options.stop,
                               [&] { return upload.rest(); });
  } catch (const std::bad_alloc&) {
    return failure(errc::out_of_memory);
  }
}

}  // namespace tensorpull
