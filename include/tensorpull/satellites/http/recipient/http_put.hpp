// Sends an image to an object store, or to any server that takes PUT. With TLS too:
// satellites/http/https/https_put.hpp.
#pragma once

#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>
#include <tensorpull/satellites/http/recipient/detail/http_dial.hpp>
#include <tensorpull/satellites/http/recipient/detail/http_line.hpp>
#include <tensorpull/satellites/http/recipient/detail/request_text.hpp>
#include <tensorpull/transports/blocking/tries.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

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
/// What the server has said.
struct http_put_receipt {
  unsigned status = 0;  ///< 200, 201 or 204
  std::uint64_t bytes = 0;  ///< of the body
  std::uint64_t digest = 0;  ///< XXH3-64 of the bytes that were sent
};

namespace detail {

template <class Dial>
class http_upload {
 public:
  using line = http_line<typename Dial::stream>;
  static constexpr std::size_t slice_bytes = 64 * 1024;

  http_upload(const Dial& dial, const http_address& to, const source_view& image, const http_put_options& options)
      : dial_(dial), to_(to), image_(image), options_(options), line_(new line), slice_(slice_bytes) {}

  /// How long the server of the last try wants us to stay away.
  std::chrono::milliseconds asked_to_wait() const noexcept { return asked_to_wait_; }
  /// One try. Errors: those of the stream, the server's refusal, unreadable (the image).
  result<http_put_receipt> put(const http_url& origin) {
    http_url url = origin;
    asked_to_wait_ = {};
    const std::uint64_t total = image_.schema->image_bytes;
    bool expects = true;  // consent
    for (std::uint32_t redirects = 0;;) {
      std::string text = begin_request("PUT", to_, url, url.target, origin);
      add_field(text, "Content-Type", "application/octet-stream");
      add_field(text, "Content-Length", std::to_string(total));
      if (expects) add_field(text, "Expect", "100-continue");
      auto s = dial_.connect(url, to_.proxy, options_.timeout, options_.stop);
      if (!s) return failure(s.error());
      line_->connect(std::move(*s));
      line_->ask(text);
      const auto sent = send(total, expects);
      if (!sent) return failure(sent.error());
      const unsigned status = line_->head().status;
      if (status == 417 && std::exchange(expects, false)) {  // it, or a proxy, knows no consent (RFC 9110, 10.1.1)
        line_->drop();
        continue;
      }
      if (status == 307 || status == 308) {  // the others change what is asked
        if (redirects++ == to_.redirects)
          return failure(errc::not_permitted, status, std::string_view("too many redirects"));
        auto next = resolve_location(url, line_->head().location);
        if (!next) return failure(next.error());
        line_->drop();
        url = std::move(*next);
        continue;
      }
      asked_to_wait_ = std::chrono::seconds(std::min<std::uint64_t>(line_->head().retry_after_s, 1'000'000));
      line_->drop();
      if (status != 200 && status != 201 && status != 204) return failure(error_of_status(status, url));
      if (*sent != total) return failure(errc::unexpected_frame, *sent, std::string_view("an answer before the end"));
      return http_put_receipt{status, total, hash_.digest()};
    }
  }

 private:
  /// Sends the request and the body until the answer has come. The number of bytes of the body that were taken.
  result<std::uint64_t> send(std::uint64_t total, bool expects) {
    using clock = std::chrono::steady_clock;
    auto moved = clock::now();
    const auto asked = moved;
    std::uint64_t sent = 0, counted = 0;
    hash_.reset();
    for (;;) {
      if (options_.stop.stop_requested()) return failure(errc::cancelled);
      const auto there = line_->step();
      if (!there) return failure(there.error());
      if (*there) return sent;
      const bool may = line_->now() == line::phase::head &&
                       (!expects || line_->interim() > 0 || has_passed(clock::now() - asked, options_.consent));
      if (may && sent < total) {
        std::array<std::span<const std::byte>, 16> pieces;
        const bool last = sent + 1 == total;
        const std::uint64_t most = total - sent - (options_.digest != 0 && !last ? 1 : 0);
        const gathered g = gather(image_, sent, std::min<std::uint64_t>(most, 1 << 20), pieces, slice_);
        if (g.failed) return failure(errc::unreadable, sent);
        if (options_.digest != 0 && last && !completes(pieces[0])) return failure(errc::digest_mismatch, sent);
        const io_result io = line_->stream().write_some(gather_list(pieces.data(), g.pieces));
        if (io.status != io_status::ok && io.status != io_status::would_block) {
          const auto answer = line_->step();  // a server that refuses may close before it has read everything
          if (answer && *answer) return sent;
          return failure(error_of(io));
        }
        take(std::span(pieces).first(g.pieces), io.bytes);
        sent += io.bytes;
        if (sent - counted >= 64 * 1024 || sent == total) {
          counted = sent;
          moved = clock::now();
        }
        if (io.bytes > 0) continue;
      }
      const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - moved);
      if (spent >= options_.timeout) return failure(errc::timed_out);
      pollfd p = line_->waits_for(true);
      if (may && sent < total) p.events = static_cast<short>(p.events | POLLOUT);
      (void)::poll(&p, 1, static_cast<int>(std::min(wait_step, options_.timeout - spent).count()));
    }
  }

  /// Whether the bytes that were sent have the digest with this one.
  bool completes(std::span<const std::byte> last) const noexcept {
    xxhash_digest all = hash_;
    all.update(last);
    return std::max<std::uint64_t>(all.digest(), 1) == options_.digest;
  }
  /// What has been sent, of these pieces.
  void take(gather_list pieces, std::size_t bytes) noexcept {
    for (const auto& p : pieces) {
      const auto some = p.first(std::min(p.size(), bytes));
      hash_.update(some);
      bytes -= some.size();
    }
  }

  const Dial& dial_;
  const http_address& to_;
  const source_view& image_;
  const http_put_options& options_;
  std::unique_ptr<line> line_;
  std::vector<std::byte> slice_;
  xxhash_digest hash_{};  // of what was sent in this try
  std::chrono::milliseconds asked_to_wait_{0};
};

template <class Dial>
result<http_put_receipt> http_put_with(const Dial& dial, const http_address& to, const source_view& image,
                                       const http_put_options& options) noexcept {
  try {
    const auto url = checked_url(to);
    if (!url) return failure(url.error());
    http_upload<Dial> upload(dial, to, image, options);
    return keep_trying([&] { return upload.put(*url); }, retry_state(options.retry, options.timeout), options.stop,
                       [&] { return upload.asked_to_wait(); });
  } catch (const std::bad_alloc&) {
    return failure(errc::out_of_memory);
  }
}

}  // namespace detail

/// Sends the image as one object, with its length, in pieces as the connection takes them: nothing is held but 64 KiB
/// for bytes that are not in memory. A signed URL is sent as it is, and nothing is added that would be signed. `digest`
/// and `recipient` of the address mean nothing here. Errors: as those of `http`; unreadable: the image cannot be read
/// any more; digest_mismatch: it is not what `options.digest` says. Only the server knows whether it has kept the
/// bytes: a pull of them compares a digest.
inline result<http_put_receipt> http_put(const http_address& to, const source_view& image,
                                         const http_put_options& options = {}) noexcept {
  return detail::http_put_with(detail::http_dial{}, to, image, options);
}

}  // namespace tensorpull
