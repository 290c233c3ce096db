// An address as an error may show it.
#pragma once

#include <tensorpull/core/error.hpp>

#include <array>
#include <cstddef>
#include <string_view>

namespace tensorpull {

namespace detail {
/// Calls `piece(text)` with what may be shown of an address, in order: all but what stands before the last `@` of each
/// URL in it, since that may be a password.
template <class Piece>
constexpr void each_shown_piece(std::string_view address, Piece piece) {
  constexpr std::string_view mark = "://";
  for (;;) {
    const std::size_t end = address.find(mark);
    const std::string_view one = address.substr(0, end);
    piece(one.substr(one.rfind('@') + 1));  // from the first, if there is no @
    if (end == address.npos) return;
    piece(mark);
    address.remove_prefix(end + mark.size());
  }
}
}  // namespace detail

/// An address for an error's text: without the users and passwords of the URLs in it.
constexpr error_name without_secrets(std::string_view address) noexcept {
  std::array<char, 64> text{};  // more than a name holds
  std::size_t size = 0;
  detail::each_shown_piece(address, [&](std::string_view piece) {
    for (const char c : piece)
      if (size < text.size()) text[size++] = c;
  });
  return std::string_view(text.data(), size);
}

}  // namespace tensorpull
