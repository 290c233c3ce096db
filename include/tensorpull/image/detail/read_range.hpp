// A range of an image, copied into memory.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/image/gather_scatter.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tensorpull::detail {

/// Copies the image's bytes [offset, offset + out.size()), which lie within it. io: a source_reader failed; what was
/// read before that is there. 4 KiB of the stack.
[[nodiscard]] inline result<void> read_range(const source_view& image, std::uint64_t offset,
                                             std::span<std::byte> out) noexcept {
  std::span<const std::byte> pieces[16];
  std::array<std::byte, 4096> slice;
  while (!out.empty()) {
    const gathered g = gather(image, offset, out.size(), pieces, slice);
    for (std::size_t i = 0; i < g.pieces; ++i) {
      std::memcpy(out.data(), pieces[i].data(), pieces[i].size());
      out = out.subspan(pieces[i].size());
    }
    offset += g.bytes;
    if (g.failed || g.bytes == 0) return failure(errc::io, offset);
  }
  return {};
}

}  // namespace tensorpull::detail
