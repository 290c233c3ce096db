// The input of a hash over blocks of 64 bytes that ends with its length (MD5, SHA-256).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull::detail {

/// Holds what is no whole block yet. 72 bytes.
class block_input {
 public:
  /// Calls `compress(block)` with each block that these bytes complete.
  template <class Compress>
  constexpr void update(std::span<const std::byte> bytes, Compress compress) noexcept {
    const std::size_t held = length_ % 64;
    length_ += bytes.size();
    if (held != 0) {
      const std::size_t n = std::min(bytes.size(), 64 - held);
      std::copy_n(bytes.data(), n, block_.data() + held);
      bytes = bytes.subspan(n);
      if (held + n < 64) return;
      compress(block_.data());
    }
    for (; bytes.size() >= 64; bytes = bytes.subspan(64)) compress(bytes.data());
    std::copy_n(bytes.data(), bytes.size(), block_.data());
  }
  /// The same with what ends an input: a bit, zeros, and its length in bits, which `put(bits, to)` writes as 8 bytes.
  template <class Put, class Compress>
  constexpr void end(Put put, Compress compress) noexcept {
    const std::size_t held = length_ % 64, zeros = (held < 56 ? 55 : 119) - held;
    std::array<std::byte, 72> last{std::byte{0x80}};
    put(length_ * 8, &last[1 + zeros]);
    update(std::span(last).first(1 + zeros + 8), compress);
  }

 private:
  std::array<std::byte, 64> block_{};
  std::uint64_t length_ = 0;
};

}  // namespace tensorpull::detail
