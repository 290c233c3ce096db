// The length of the header, as an image's first bytes state it, beside its owner's description.
#pragma once

#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tensorpull::detail {

class header_length {
 public:
  /// Takes bytes of the image from `at` on, in order. False: the header is not `data_start` bytes long.
  bool take(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t data_start) noexcept {
    if (at >= sizeof bytes_) return true;
    const auto some = std::min<std::size_t>(bytes.size(), sizeof bytes_ - static_cast<std::size_t>(at));
    std::memcpy(bytes_ + at, bytes.data(), some);
    if (at + some < sizeof bytes_) return true;
    std::uint64_t length = 0;
    for (std::size_t i = sizeof bytes_; i-- > 0;) length = length << 8 | static_cast<std::uint8_t>(bytes_[i]);
    return length == data_start - sizeof bytes_;
  }
  /// The same of the bytes that are there already.
  bool take_all(const source_view& there, std::uint64_t data_start) noexcept {
    std::span<const std::byte> pieces[2];
    std::byte slice[sizeof bytes_];
    for (std::uint64_t at = 0; there.schema != nullptr && at < sizeof bytes_;) {
      const gathered g = gather(there, at, sizeof bytes_ - at, pieces, slice);
      for (std::size_t i = 0; i < g.pieces; at += pieces[i++].size())
        if (!take(at, pieces[i], data_start)) return false;
      if (g.failed || g.bytes == 0) break;
    }
    return true;
  }

 private:
  std::byte bytes_[8]{};
};

}  // namespace tensorpull::detail
