// What a test may ask the lwIP of this host to do, and what it saw. The functions themselves are in lwip_shim.cpp.
#pragma once

#include <atomic>
#include <cstddef>

namespace test {

struct lwip_shim {
  /// Bytes that one call moves at most: a small stack has a window of a few segments.
  static inline std::atomic<std::size_t> most{536};
  /// Calls of recv and send until one fails with ENOMEM; negative: none.
  static inline std::atomic<int> fails_after{-1};
  /// Sockets that are open now.
  static inline std::atomic<int> open{0};
  /// Calls of recv and send on a socket that would have waited.
  static inline std::atomic<int> waited{0};
};

}  // namespace test
