// Where a thread that moves bytes for many connections puts what it sends and does not find in memory.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace tensorpull::detail {

/// 64 KiB for each such thread: prefixes, header text, packed elements.
inline std::span<std::byte> thread_scratch() noexcept {
  alignas(64) thread_local std::array<std::byte, 64 * 1024> memory;
  return memory;
}

}  // namespace tensorpull::detail
