// A position in a list of spans that is sent piece by piece, some of them gathered.
#pragma once

#include <tensorpull/links/byte_stream.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

namespace tensorpull::detail {

/// Where the next byte of a list of spans is.
struct gather_cursor {
  explicit gather_cursor(gather_list list) noexcept : spans(list) {
    for (const auto s : list) bytes += s.size();
    settle();
  }
  std::size_t left() const noexcept { return bytes; }
  /// The rest of the span that it is in.
  std::span<const std::byte> here() const noexcept { return spans.front().subspan(at); }
  void skip(std::size_t n) noexcept {
    bytes -= n;
    while (n > 0) {
      const std::size_t step = std::min(n, here().size());
      at += step;
      n -= step;
      settle();
    }
  }
  /// Copies as much as there is room for, and stays where it is. It does not end one byte into a span: that byte may
  /// be the first of a frame, and as long as a caller does not know that it was taken, another frame may stand there
  /// by then.
  std::span<const std::byte> copy(std::span<std::byte> to) const noexcept {
    gather_cursor c = *this;
    std::size_t n = 0;
    while (n < to.size() && c.left() > 0) {
      const auto piece = c.here().first(std::min(c.here().size(), to.size() - n));
      std::memcpy(to.data() + n, piece.data(), piece.size());
      n += piece.size();
      c.skip(piece.size());
    }
    if (c.at == 1 && n > 1) --n;
    return to.first(n);
  }
  void settle() noexcept {
    while (!spans.empty() && at == spans.front().size()) {
      spans = spans.subspan(1);
      at = 0;
    }
  }
  gather_list spans;
  std::size_t at = 0, bytes = 0;
};

}  // namespace tensorpull::detail
