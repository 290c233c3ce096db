// The message handler of an end that takes no messages.
#pragma once

#include <tensorpull/framing/frame.hpp>

namespace tensorpull::testing::detail {

struct deaf {
  static constexpr bool ready() noexcept { return true; }
  static constexpr void on_message(const frame&) noexcept {}
};

}  // namespace tensorpull::testing::detail
