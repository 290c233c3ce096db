// MD5 (RFC 1321): the entity tag by which S3 shows which bytes a part has, and Content-MD5, which a store compares. It
// protects against accidents. Nobody is believed because of it.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/detail/block_input.hpp>
#include <tensorpull/core/digest_kind.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull::detail {

using md5_value = std::array<std::byte, 16>;

/// A model of `hash`: value() gives the digest, digest() its first eight bytes. 88 bytes, no heap.
class md5_hash {
 public:
  static constexpr digest_kind kind = digest_kind::none;

  constexpr void update(std::span<const std::byte> bytes) noexcept {
    input_.update(bytes, [this](const std::byte* block) noexcept { compress(block); });
  }
  constexpr md5_value value() const noexcept {
    md5_hash last = *this;
    last.input_.end([](std::uint64_t bits, std::byte* to) noexcept { store_le64(to, bits); },
                    [&](const std::byte* block) noexcept { last.compress(block); });
    md5_value out{};
    for (std::size_t i = 0; i < 16; ++i) out[i] = static_cast<std::byte>(last.state_[i / 4] >> (8 * (i % 4)) & 0xff);
    return out;
  }
  constexpr std::uint64_t digest() const noexcept { return load_le64(value().data()); }

 private:
  /// The integer parts of 2^32 times the sines of 1 to 64.
  static constexpr std::uint32_t k_[64]{
      0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
      0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
      0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
      0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
      0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
      0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
      0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
      0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};

  constexpr void compress(const std::byte* block) noexcept {
    constexpr int turns[4][4]{{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
    std::array<std::uint32_t, 16> words{};
    for (std::size_t i = 0; i < 16; ++i) words[i] = static_cast<std::uint32_t>(load_le32(block + 4 * i));
    auto [a, b, c, d] = state_;
    for (std::uint32_t i = 0; i < 64; ++i) {
      std::uint32_t f = 0, word = i;
      switch (i / 16) {
        case 0: f = d ^ (b & (c ^ d)); break;
        case 1: f = c ^ (d & (b ^ c)), word = 5 * i + 1; break;
        case 2: f = b ^ c ^ d, word = 3 * i + 5; break;
        default: f = c ^ (b | ~d), word = 7 * i;
      }
      const std::uint32_t sum = a + f + k_[i] + words[word % 16];
      a = d, d = c, c = b;
      b += std::rotl(sum, turns[i / 16][i % 4]);
    }
    state_ = {state_[0] + a, state_[1] + b, state_[2] + c, state_[3] + d};
  }

  std::array<std::uint32_t, 4> state_{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  block_input input_{};
};

}  // namespace tensorpull::detail
