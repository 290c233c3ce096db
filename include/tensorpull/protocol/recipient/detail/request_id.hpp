// The numbers of requests.
#pragma once

#include <cstdint>

namespace tensorpull::detail {

/// Whether one id was used before another; ids may wrap.
inline bool comes_before(std::uint32_t id, std::uint32_t other) noexcept {
  return static_cast<std::int32_t>(id - other) < 0;
}

}  // namespace tensorpull::detail
