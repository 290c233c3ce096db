// Sends an image to an object store over TLS.
#pragma once

#include <tensorpull/transports/http/http_put.hpp>
#include <tensorpull/transports/https/https_pull.hpp>

#include <utility>

namespace tensorpull {

/// As http_put, with URLs of either scheme. More errors: those of tls_address::connect.
inline result<http_put_receipt> https_put(const https_address& to, const source_view& image,
                                          const http_put_options& options = {}) noexcept {
  detail::https_dial dial{to.context};
  if (!dial.context) {
    auto system = tls_context::make({});
    if (!system) return failure(system.error());
    dial.context = std::move(*system);
  }
  return detail::http_put_with(dial, to.to, image, options);
}

}  // namespace tensorpull
