// How a transaction ended, in one word, and its name.
#pragma once

#include <cstdint>
#include <string_view>

namespace tensorpull {

/// How a transaction ended. An unknown number of recipients never ends as completed.
enum class verdict : std::uint8_t {
  open,                  ///< it has not
  completed,             ///< every expected recipient confirmed every reference with its digest
  completed_unverified,  ///< every expected recipient confirmed, not all with a digest
  quorum,                ///< not all, but at least as many as were asked for
  failed,                ///< fewer
  uncertified,           ///< the number of recipients was not known
  withdrawn,             ///< the owner ended it before
};

constexpr std::string_view to_string(verdict v) noexcept {
  switch (v) {
    case verdict::open: return "open";
    case verdict::completed: return "completed";
    case verdict::completed_unverified: return "completed_unverified";
    case verdict::quorum: return "quorum";
    case verdict::failed: return "failed";
    case verdict::uncertified: return "uncertified";
    case verdict::withdrawn: return "withdrawn";
  }
  return "unknown";
}

/// Names a transaction of one owner; none: {}.
struct transaction_id {
  std::uint32_t index = 0;
  std::uint32_t number = 0;

  friend constexpr bool operator==(const transaction_id&, const transaction_id&) noexcept = default;
  constexpr explicit operator bool() const noexcept { return number != 0; }
};

}  // namespace tensorpull
