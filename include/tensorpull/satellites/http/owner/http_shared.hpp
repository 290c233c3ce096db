// What the HTTP connections of one host share: how they answer, what they have answered, and which bytes each recipient
// was sent.
#pragma once

#include <tensorpull/satellites/http/owner/detail/owner_coverage.hpp>
#include <tensorpull/satellites/http/owner/http_metrics.hpp>
#include <tensorpull/satellites/http/owner/http_origin.hpp>

#include <cstddef>

namespace tensorpull {

/// What an HTTP owner is asked to do. It may be changed before the event loop runs.
struct http_options {
  bool metrics = false;  ///< GET /metrics answers every client that can connect. It names no reference
  /// Caches that many share may keep images. If they heed `Vary`, they give an image only to clients that show the same
  /// key. An owner with authorise() never allows it, since a cache would not ask.
  bool shared_caches = true;
  /// Web pages of this origin may read the answers in a browser, except `/metrics`, and OPTIONS is answered. They need
  /// the key like anybody else: no cookie and no certificate of the browser's stands in for it. Default: no page, and
  /// OPTIONS is refused.
  http_origin allow_origin{};
};

/// What the HTTP connections of one host share. Made by the host; 144 bytes for each recipient that the limits allow.
template <class Lock, std::size_t Recipients>
class http_shared {
 public:
  http_options options{};  ///< see there
  http_counts counts{};  ///< see there
  detail::owner_coverage<Lock> coverage{Recipients};  ///< for the connections
};

}  // namespace tensorpull
