// A stream over functions that take and give what there is room for.
#pragma once

#include <tensorpull/links/byte_stream.hpp>

/// Read: memory to the number of bytes that have come. Write: bytes to the number of those that were taken.
template <auto Read, auto Write>
struct byte_line {
  tensorpull::io_result read_some(std::span<const std::span<std::byte>> spans) noexcept { return move(spans, Read); }
  tensorpull::io_result write_some(std::span<const std::span<const std::byte>> spans) noexcept {
    return move(spans, Write);
  }
  tensorpull::io_ready wait(bool read, bool write, std::chrono::milliseconds) noexcept { return {read, write}; }

 private:
  template <class Spans, class Some>
  static tensorpull::io_result move(Spans spans, Some some) noexcept {
    std::size_t n = 0;
    for (const auto& s : spans) {
      const std::size_t moved = some(s);
      n += moved;
      if (moved < s.size()) break;
    }
    return {n > 0 ? tensorpull::io_status::ok : tensorpull::io_status::would_block, 0, n};
  }
};
