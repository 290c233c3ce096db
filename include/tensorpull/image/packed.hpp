// Any byte range of a tensor that memory does not hold as the image has it: strided, with numbers in another byte order
// than the image, or behind a source_reader. On a big-endian machine these are all tensors of numbers of more than one
// byte.
#pragma once

#include <tensorpull/image/strided.hpp>
#include <tensorpull/image/view.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tensorpull::detail {

/// The tensor's bytes as they lie in memory, in C order.
inline void read_elements(const tensor_entry& entry, const std::byte* from, std::uint64_t offset,
                          std::span<std::byte> out) noexcept {
  if (entry.strides_bytes == nullptr) std::memcpy(out.data(), from + static_cast<std::size_t>(offset), out.size());
  else strided_bytes(bits(entry.type) / 8, entry.extents(), entry.strides_bytes, from).read(offset, out);
}

/// The same with the bytes of each number in reverse. Any range: a number that it cuts is read whole.
inline void read_swapped(const tensor_entry& entry, const std::byte* from, std::uint64_t offset,
                         std::span<std::byte> out) noexcept {
  const std::size_t width = entry.reversed_bytes();
  while (!out.empty()) {
    const std::size_t within = static_cast<std::size_t>(offset % width);
    std::size_t n = out.size() - out.size() % width;
    if (within == 0 && n != 0) {
      read_elements(entry, from, offset, out.first(n));
      for (std::size_t at = 0; at < n; at += width)
        for (std::size_t i = 0, k = width - 1; i < k; ++i, --k) {
          const std::byte b = out[at + i];
          out[at + i] = out[at + k];
          out[at + k] = b;
        }
    } else {
      std::byte number[8];
      read_elements(entry, from, offset - within, {number, width});
      n = smaller(out.size(), width - within);
      for (std::size_t i = 0; i < n; ++i) out[i] = number[width - 1 - within - i];
    }
    out = out.subspan(n);
    offset += n;
  }
}

/// The inverse of read_swapped: puts the bytes that arrive at `offset` where they belong among numbers of `width` bytes
/// from `to` on, each in reverse. Any range, also one that begins and ends within a number: each byte has a position of
/// its own, whatever has arrived before.
inline void write_swapped(std::size_t width, std::byte* to, std::uint64_t offset,
                          std::span<const std::byte> bytes) noexcept {
  std::size_t within = static_cast<std::size_t>(offset % width);
  std::byte* number = to + static_cast<std::size_t>(offset - within);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    number[width - 1 - within] = bytes[i];
    if (++within < width) continue;
    within = 0;
    number += width;
  }
}

/// Writes bytes [offset, offset + out.size()) of tensor i, as the image has them. False: its reader failed.
inline bool pack(const source_view& source, std::size_t i, std::uint64_t offset, std::span<std::byte> out) noexcept {
  const tensor_entry& entry = source.schema->tensors[i];
  if (entry.indirect)
    return source.reader != nullptr &&
           source.reader->read(source.reader->context, source.where[i], offset, out).has_value();
  if (entry.reversed_bytes() != 0) read_swapped(entry, source.address(i), offset, out);
  else read_elements(entry, source.address(i), offset, out);
  return true;
}

}  // namespace tensorpull::detail
