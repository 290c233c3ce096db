// Sends an image to an object store, or to any server that takes PUT. It needs libcurl.
#pragma once

#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>
#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/satellites/http/recipient/detail/http_requests.hpp>
#include <tensorpull/transports/blocking/tries.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <span>
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
  http_upload(http_requests& requests, const http_address& to, const source_view& image,
              const http_put_options& options)
      : requests_(requests), to_(to), image_(image), options_(options), over_(1), slice_(slice_bytes) {}

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
      if (const auto ok = until_answered(l); !ok) return failure(why_.code != errc{} ? why_ : ok.error());
      const http_head h = l.head();
      over_.drop(l);
      if (h.status == 417 && std::exchange(consent, false)) continue;  // it, or a proxy, knows none, and has closed
      if (h.status == 307 || h.status == 308) {  // the others change what is asked
        if (redirects++ == to_.redirects)
          return failure(errc::not_permitted, h.status, std::string_view("too many redirects"));
        auto next = resolve_location(requests_.url(), h.location);
        if (!next) return failure(next.error());
        requests_.go_to(std::move(*next));
        continue;
      }
      rest_ = h.is_busy() ? back_off(options_.retry, busy_++, h.wait) : h.wait;
      if (h.status != 200 && h.status != 201 && h.status != 204)
        return failure(error_of_status(h.status, requests_.url()));
      if (sent_ != total()) return failure(errc::unexpected_frame, sent_, std::string_view("an answer before the end"));
      return http_put_receipt{h.status, sent_, hash_.digest()};
    }
  }

 private:
  static constexpr std::size_t slice_bytes = 64 * 1024;
  std::uint64_t total() const noexcept { return image_.schema->image_bytes; }

  result<void> ask(http_line& l, bool consent) {
    begin_anew();
    if (const auto ok = requests_.begin(over_, l, *this, requests_.url()); !ok) return ok;
    l.set(CURLOPT_UPLOAD, 1L);
    l.set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(total()));
    l.set(CURLOPT_READFUNCTION, &on_read);
    l.set(CURLOPT_READDATA, this);
    l.set(CURLOPT_SEEKFUNCTION, &on_seek);
    l.set(CURLOPT_SEEKDATA, this);
    l.set(CURLOPT_EXPECT_100_TIMEOUT_MS,
          static_cast<long>(std::clamp<std::int64_t>(options_.consent.count(), 0, no_timeout_ms)));
    l.add("Content-Type: application/octet-stream");
    if (!consent) l.add("Expect:");
    return over_.start(l);
  }
  result<void> until_answered(http_line& l) {
    using clock = std::chrono::steady_clock;
    auto moved = clock::now();
    for (std::uint64_t counted = 0;;) {
      if (options_.stop.stop_requested()) return failure(errc::cancelled);
      const bool did = over_.perform();
      const auto there = l.answered();
      if (!there) return failure(there.error());
      if (*there) return {};
      if (sent_ - counted >= 64 * 1024 || sent_ < counted || (sent_ == total() && counted != sent_)) {
        counted = sent_;
        moved = clock::now();
      }
      const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - moved);
      if (spent >= options_.timeout) return failure(errc::timed_out);
      if (!did) over_.wait(std::min(wait_step, options_.timeout - spent));
    }
  }
  std::size_t take(http_line&, std::span<const std::byte>) noexcept override { return 0; }  // the head says enough

  static std::size_t on_read(char* to, std::size_t, std::size_t room, void* self) noexcept {
    http_upload& u = *static_cast<http_upload*>(self);
    return u.give(std::as_writable_bytes(std::span(to, room))) ? u.given_ : std::size_t{CURL_READFUNC_ABORT};
  }
  /// libcurl sends it again from its first byte: over another connection, or without asking for consent.
  static int on_seek(void* self, curl_off_t to, int) noexcept {
    static_cast<http_upload*>(self)->begin_anew();
    return to == 0 ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_CANTSEEK;
  }
  void begin_anew() noexcept {
    sent_ = 0;
    hash_.reset();
    why_ = {};
  }
  /// Copies the next bytes. False: they cannot be read, or are others than they should be.
  bool give(std::span<std::byte> to) noexcept {
    const bool last = sent_ + 1 == total();
    // the last byte goes alone, if the digest of all has to be right
    const std::uint64_t most = total() - sent_ - (options_.digest != 0 && sent_ < total() && !last ? 1 : 0);
    to = to.first(static_cast<std::size_t>(std::min<std::uint64_t>(to.size(), most)));
    given_ = 0;
    if (to.empty()) return true;
    std::array<std::span<const std::byte>, 16> pieces;
    const gathered g = gather(image_, sent_, to.size(), pieces, slice_);
    if (g.failed) why_ = {errc::unreadable, 0, sent_, {}};
    for (const auto& p : std::span(pieces).first(g.failed ? 0 : g.pieces)) {
      std::memcpy(to.data() + given_, p.data(), p.size());
      given_ += p.size();
    }
    hash_.update(to.first(given_));
    if (options_.digest != 0 && last && std::max<std::uint64_t>(hash_.digest(), 1) != options_.digest)
      why_ = {errc::digest_mismatch, 0, sent_, {}};
    sent_ += given_;
    return why_.code == errc{};
  }

  http_requests& requests_;
  const http_address& to_;
  const source_view& image_;
  const http_put_options& options_;
  http_lines over_;
  std::vector<std::byte> slice_;
  std::size_t given_ = 0;
  std::uint64_t sent_ = 0;
  unsigned busy_ = 0;  // how often the server was
  xxhash_digest hash_{};  // of what was sent in this try
  error why_{};  // why the image is not sent
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
    detail::http_upload upload(requests, to, image, options);
    return detail::keep_trying([&] { return upload.put(); }, retry_state(options.retry, options.timeout), options.stop,
                               [&] { return upload.rest(); });
  } catch (const std::bad_alloc&) {
    return failure(errc::out_of_memory);
  }
}

}  // namespace tensorpull
