// Bytes of an image as the body of a request, and the wait for its answer.
#pragma once

#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/integrity/xxhash/xxhash_digest.hpp>
#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/satellites/http/recipient/detail/http_lines.hpp>
#include <tensorpull/std/stop_token.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace tensorpull::detail {

/// The bytes [from, to) of an image, which are gathered as libcurl asks for them.
class http_body {
 public:
  /// Borrows the image. `digest`: XXH3-64 of these bytes; 0: any. The last byte is held back until those before it have
  /// it. Throws std::bad_alloc.
  http_body(const source_view& image, std::uint64_t from, std::uint64_t to, std::uint64_t digest)
      : image_(image), from_(from), bytes_(to - from), expected_(digest), slice_(slice_bytes) {}
  http_body(const http_body&) = delete;
  http_body& operator=(const http_body&) = delete;

  /// Makes it the body of a request that uploads, from its first byte.
  void attach(http_line& l, std::chrono::milliseconds consent) noexcept {
    begin_anew();
    l.set(CURLOPT_UPLOAD, 1L);
    l.set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(bytes_));
    l.set(CURLOPT_READFUNCTION, &on_read);
    l.set(CURLOPT_READDATA, this);
    l.set(CURLOPT_SEEKFUNCTION, &on_seek);
    l.set(CURLOPT_SEEKDATA, this);
    l.set(CURLOPT_EXPECT_100_TIMEOUT_MS,
          static_cast<long>(std::clamp<std::int64_t>(consent.count(), 0, no_timeout_ms)));
  }
  std::uint64_t sent() const noexcept { return sent_; }
  bool whole() const noexcept { return sent_ == bytes_; }
  /// XXH3-64 of what was sent.
  std::uint64_t digest() const noexcept { return hash_.digest(); }
  /// Another number with each 64 KiB that were sent, and at the end.
  std::uint64_t progress() const noexcept { return whole() ? ~std::uint64_t{0} : sent_ / slice_bytes; }
  /// Why it is not sent. Errors: unreadable; digest_mismatch.
  result<void> outcome() const noexcept {
    if (why_.code != errc{}) return failure(why_);
    return {};
  }

 private:
  static constexpr std::size_t slice_bytes = 64 * 1024;

  static std::size_t on_read(char* to, std::size_t, std::size_t room, void* self) noexcept {
    http_body& b = *static_cast<http_body*>(self);
    return b.give(std::as_writable_bytes(std::span(to, room))) ? b.given_ : std::size_t{CURL_READFUNC_ABORT};
  }
  /// libcurl sends it again from its first byte: over another connection, or without asking for consent.
  static int on_seek(void* self, curl_off_t to, int) noexcept {
    static_cast<http_body*>(self)->begin_anew();
    return to == 0 ? CURL_SEEKFUNC_OK : CURL_SEEKFUNC_CANTSEEK;
  }
  void begin_anew() noexcept {
    sent_ = 0;
    hash_.reset();
    why_ = {};
  }
  /// Copies the next bytes. False: they cannot be read, or are others than they should be.
  bool give(std::span<std::byte> to) noexcept {
    const bool last = sent_ + 1 == bytes_;
    // the last byte goes alone, if the digest of all has to be right
    const std::uint64_t most = bytes_ - sent_ - (expected_ != 0 && sent_ < bytes_ && !last ? 1 : 0);
    to = to.first(static_cast<std::size_t>(std::min<std::uint64_t>(to.size(), most)));
    given_ = 0;
    if (to.empty()) return true;
    std::array<std::span<const std::byte>, 16> pieces;
    const gathered g = gather(image_, from_ + sent_, to.size(), pieces, slice_);
    if (g.failed) why_ = {errc::unreadable, 0, from_ + sent_, {}};
    for (const auto& p : std::span(pieces).first(g.failed ? 0 : g.pieces)) {
      std::memcpy(to.data() + given_, p.data(), p.size());
      given_ += p.size();
    }
    hash_.update(to.first(given_));
    if (expected_ != 0 && last && std::max<std::uint64_t>(hash_.digest(), 1) != expected_)
      why_ = {errc::digest_mismatch, 0, from_ + sent_, {}};
    sent_ += given_;
    return why_.code == errc{};
  }

  const source_view& image_;
  std::uint64_t from_, bytes_, expected_;
  std::vector<std::byte> slice_;
  std::size_t given_ = 0;
  std::uint64_t sent_ = 0;
  xxhash_digest hash_{};  // of what was sent in this try
  error why_{};
};

/// Goes on with the requests until `done() -> result<bool>` is true. Errors: its own; cancelled; timed_out: `moved()`
/// has given the same number for so long.
template <class Done, class Moved>
result<void> await_line(http_lines& over, Done done, Moved moved, std::chrono::milliseconds timeout,
                        const stop_token& stop) {
  using clock = std::chrono::steady_clock;
  auto since = clock::now();
  for (auto counted = moved();;) {
    if (stop.stop_requested()) return failure(errc::cancelled);
    const bool did = over.perform();
    const auto there = done();
    if (!there) return failure(there.error());
    if (*there) return {};
    if (const auto now = moved(); now != counted) {
      counted = now;
      since = clock::now();
    }
    const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - since);
    if (spent >= timeout) return failure(errc::timed_out);
    if (!did) over.wait(std::min(wait_step, timeout - spent));
  }
}

}  // namespace tensorpull::detail
