// Sends an image to an object store over TLS.
#pragma once

#include <tensorpull/satellites/http/https/https_pull.hpp>
#include <tensorpull/satellites/http/recipient/http_put.hpp>

namespace tensorpull {

/// As http_put, with URLs of either scheme. More errors: those of tls_address::connect.
inline result<http_put_receipt> https_put(const https_address& to, const source_view& image,
                                          const http_put_options& options = {}) noexcept {
  const auto dial = detail::https_dial::of(to.context);
  if (!dial) return failure(dial.error());
  return detail::http_put_with(*dial, to.to, image, options);
}

}  // namespace tensorpull
