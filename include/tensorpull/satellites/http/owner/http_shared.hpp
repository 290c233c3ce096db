// What the HTTP connections of one host share: how they answer, what they have answered, which bytes each recipient was
// sent, and the status pages that are on their way.
#pragma once

#include <tensorpull/satellites/http/owner/detail/owner_coverage.hpp>
#include <tensorpull/satellites/http/owner/detail/status_views.hpp>
#include <tensorpull/satellites/http/owner/http_metrics.hpp>
#include <tensorpull/satellites/http/owner/http_origin.hpp>
#include <tensorpull/satellites/http/owner/http_password.hpp>
#include <tensorpull/satellites/http/owner/status_names.hpp>

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
  /// `/` is a page for people and `/status.json` the same for programs: what is published, and how each recipient
  /// fares. A browser asks for this password; any user name does. `/metrics` is answered with it, too. Neither shows a
  /// key or a version; both show names, sizes and how much was sent. Without TLS the password can be read on the way.
  http_password status{};
  const pull_counts* pulls = nullptr;  ///< of the program, for `/metrics`; borrowed as long as connections are open
  const status_names* names = nullptr;  ///< what `/` calls them; borrowed as long as connections are open
};

/// What the HTTP connections of one host share. Made by the host; 144 bytes for each recipient that the limits allow.
template <class Lock, std::size_t Recipients>
class http_shared {
 public:
  http_options options{};  ///< see there
  http_counts counts{};  ///< see there
  detail::owner_coverage<Lock> coverage{Recipients};  ///< for the connections
  detail::status_views<Lock> views{};  ///< for the connections
};

}  // namespace tensorpull
