#include "puts.hpp"

#include "link_choice.hpp"

#include <tensorpull/integrity/range_digest.hpp>
#include <tensorpull/satellites/http/recipient/http_put.hpp>

#include <algorithm>
#include <vector>

namespace tools {

namespace {

/// image_version(), which hears a stop.
tp::result<std::uint64_t> version_of(const tp::source_view& image, const tp::stop_token& stop) {
  tp::xxhash_digest digest;
  std::vector<std::byte> slice(64 * 1024);
  const std::uint64_t total = image.schema->image_bytes;
  for (std::uint64_t at = 0, n = 0; at < total; at += n) {
    if (stop.stop_requested()) return tp::failure(tp::errc::cancelled);
    n = std::min<std::uint64_t>(total - at, 64 << 20);
    if (!tp::hash_range(digest, image, at, n, slice)) return tp::failure(tp::errc::unreadable, at);
  }
  return std::max<std::uint64_t>(digest.digest(), 1);
}

}  // namespace

tp::result<std::uint64_t> put_over_http(const link_choice& link, const tp::source_view& image,
                                        std::chrono::milliseconds timeout, const tp::stop_token& stop) {
  const auto version = version_of(image, stop);
  if (!version) return version;
  const tp::http_address at{.url = link.address, .tls = link.tls.options()};
  const auto done = tp::http_put(at, image, {.timeout = timeout, .stop = stop, .digest = *version});
  if (!done) return tp::failure(done.error());
  return done->digest;
}

}  // namespace tools
