// A buffer for each thread that serves connections, for bytes to be sent that are not in memory as they are.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace tensorpull::detail {

/// 64 KiB a thread: for prefixes, the header's text, and packed elements.
inline std::span<std::byte> thread_scratch() noexcept {
  alignas(64) thread_local std::array<std::byte, 64 * 1024> memory;
  return memory;
}

}  // namespace tensorpull::detail
