// Who pulls: a number that stays the same however often the recipient reconnects.
#pragma once

#include <tensorpull/core/xxh3.hpp>

#include <cstdint>
#include <string_view>

namespace tensorpull {

/// Chosen by the recipient, or by the program that knows them all; 0: none. It tells recipients apart, it does not authenticate: whoever
/// holds a reference may claim any. Where that matters, give each recipient a reference of its own.
struct recipient_id {
  std::uint64_t value = 0;

  friend constexpr bool operator==(const recipient_id&, const recipient_id&) noexcept = default;
  constexpr explicit operator bool() const noexcept { return value != 0; }
};

/// The number for a name ("site-1"): XXH3-64 of its bytes, so both sides get the same from the same name.
constexpr recipient_id recipient_named(std::string_view name) noexcept {
  xxh3_64 h;
  h.update(name);
  const std::uint64_t v = h.digest();
  return {v != 0 ? v : 1};
}

}  // namespace tensorpull
