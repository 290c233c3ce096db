// SHA-256 (FIPS 180-4), streaming, in plain C++, in constant evaluation and on any target. It is for digests that
// others state: web servers, callers, files of checksums. The library's own digests are XXH3-64.
#pragma once

#include <tensorpull/core/detail/block_input.hpp>
#include <tensorpull/core/digest_kind.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

/// A digest of SHA-256, its most significant byte first.
using sha256_value = std::array<std::byte, 32>;

/// A model of `hash`, so that ranges of images can be fed to it: value() gives the digest, digest() its first eight
/// bytes, most significant first. 104 bytes, no heap. No instructions of its own: a few hundred MB a second.
class sha256_hash {
 public:
  static constexpr digest_kind kind = digest_kind::none;

  constexpr void update(std::span<const std::byte> bytes) noexcept {
    input_.update(bytes, [this](const std::byte* block) noexcept { compress(block); });
  }
  constexpr sha256_value value() const noexcept {
    sha256_hash last = *this;
    const auto put = [](std::uint64_t bits, std::byte* to) noexcept {
      for (std::size_t i = 0; i < 8; ++i) to[i] = static_cast<std::byte>(bits >> (56 - 8 * i) & 0xff);
    };
    last.input_.end(put, [&](const std::byte* block) noexcept { last.compress(block); });
    sha256_value out{};
    for (std::size_t i = 0; i < 32; ++i)
      out[i] = static_cast<std::byte>(last.state_[i / 4] >> (24 - 8 * (i % 4)) & 0xff);
    return out;
  }
  constexpr std::uint64_t digest() const noexcept {
    const auto all = value();
    std::uint64_t out = 0;
    for (std::size_t i = 0; i < 8; ++i) out = out << 8 | std::to_integer<std::uint64_t>(all[i]);
    return out;
  }

 private:
  /// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
  static constexpr std::uint32_t k_[64]{
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
      0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
      0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
      0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
      0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
      0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
      0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
      0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

  constexpr void compress(const std::byte* at) noexcept {
    std::uint32_t w[64]{};  // plain arrays, which cost little without optimisation, too
    for (std::size_t i = 0; i < 16; ++i)
      w[i] = std::to_integer<std::uint32_t>(at[4 * i]) << 24 | std::to_integer<std::uint32_t>(at[4 * i + 1]) << 16 |
             std::to_integer<std::uint32_t>(at[4 * i + 2]) << 8 | std::to_integer<std::uint32_t>(at[4 * i + 3]);
    for (std::size_t i = 16; i < 64; ++i) {
      const std::uint32_t x = w[i - 15], y = w[i - 2];
      const std::uint32_t s0 = (x >> 7 | x << 25) ^ (x >> 18 | x << 14) ^ x >> 3;
      const std::uint32_t s1 = (y >> 17 | y << 15) ^ (y >> 19 | y << 13) ^ y >> 10;
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state_;
    for (std::size_t i = 0; i < 64; ++i) {
      const std::uint32_t s1 = (e >> 6 | e << 26) ^ (e >> 11 | e << 21) ^ (e >> 25 | e << 7);
      const std::uint32_t s0 = (a >> 2 | a << 30) ^ (a >> 13 | a << 19) ^ (a >> 22 | a << 10);
      const std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + k_[i] + w[i];
      const std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g;
      g = f;
      f = e;
      e = d + t1;
      d = c;
      c = b;
      b = a;
      a = t1 + t2;
    }
    const std::array<std::uint32_t, 8> add{a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < 8; ++i) state_[i] += add[i];
  }

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  detail::block_input input_{};
};

}  // namespace tensorpull
