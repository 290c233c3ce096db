// A range of an image, copied into memory.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/image/gather_scatter.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tensorpull::detail {

/// Copies the image's bytes [offset, offset + out.size()), which lie within it. io: a source_reader failed; what was
/// read before that is there.
[[nodiscard]] inline result<void> read_range(const source_view& image, std::uint64_t offset,
                                             std::span<std::byte> out) noexcept {
  std::span<const std::byte> pieces[16];
  while (!out.empty()) {
    const gathered g = gather(image, offset, out.size(), pieces, out);
    // packed bytes lie at the beginning of `out`, in front of where they belong if pieces of tensors precede them; from
    // the last one on none is overwritten before it was moved
    std::size_t end = static_cast<std::size_t>(g.bytes);
    for (std::size_t i = g.pieces; i-- > 0;) {
      end -= pieces[i].size();
      std::memmove(out.data() + end, pieces[i].data(), pieces[i].size());
    }
    offset += g.bytes;
    out = out.subspan(static_cast<std::size_t>(g.bytes));
    if (g.failed || g.bytes == 0) return failure(errc::io, offset);
  }
  return {};
}

/// The same bytes where they lie, if a tensor in memory has all of them; otherwise in `room`, which is as long.
[[nodiscard]] inline result<std::span<const std::byte>> look_at_range(const source_view& image, std::uint64_t offset,
                                                                      std::span<std::byte> room) noexcept {
  std::span<const std::byte> one[1];
  const gathered g = gather(image, offset, room.size(), one, {});
  if (g.pieces == 1 && g.bytes == room.size()) return one[0];
  const auto read = read_range(image, offset, room);
  return read ? result<std::span<const std::byte>>(room) : failure(read.error());
}

}  // namespace tensorpull::detail
