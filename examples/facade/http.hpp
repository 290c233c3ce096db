// A place as libcurl's recipient takes it.
#pragma once

#include "table.hpp"

#include <tensorpull/satellites/http/recipient/http_address.hpp>

namespace tensorpull::facade {

inline http_proxy proxy_of(const proxy_settings& s) noexcept { return {s.address, s.user, s.password}; }
/// Borrows the place's texts.
inline http_address web_place(const place& p) noexcept {
  return {.url = p.address,
          .digest = p.http.digest,
          .bearer = p.http.bearer,
          .recipient = p.http.recipient,
          .proxy = proxy_of(p.proxy),
          .most_header_bytes = p.http.max_header_bytes,
          .tls = p.tls ? options_of(p.tls->given) : tls_options{}};
}

}  // namespace tensorpull::facade
