// An HTTP proxy on the way.
#pragma once

#include <string_view>

namespace tensorpull {

/// A proxy on the way. The texts are borrowed.
struct http_proxy {
  std::string_view address{};  ///< the proxy's "host:port"; empty: none is on the way
  std::string_view user{};  ///< for basic authorisation, without a colon; empty: none
  std::string_view password{};  ///< it is sent to the proxy in the clear
};

}  // namespace tensorpull
