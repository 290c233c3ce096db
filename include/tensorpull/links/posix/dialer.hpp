// How an address may bring a connection of its own.
#pragma once

#include <tensorpull/links/posix/posix_stream.hpp>
#include <tensorpull/std/stop_token.hpp>

#include <string_view>

namespace tensorpull {

/// Makes the sockets of an address in place of its transport: through a proxy, for example. It waits on the caller's
/// thread.
class dialer {
 public:
  /// Connects to "host:port" within `timeout`. Errors: its own; cancelled: `stop` was requested, noticed within 0.1 s.
  virtual result<posix_stream> dial(std::string_view address, std::chrono::milliseconds timeout,
                                    const stop_token& stop) const noexcept = 0;

 protected:
  ~dialer() = default;
};

}  // namespace tensorpull
