// SHA-256 (FIPS 180-4), in plain C++, for digests that servers and callers state. 64 bytes of state and one block.
#pragma once

#include <tensorpull/integrity/concept.hpp>
#include <tensorpull/transports/http/detail/pull_text.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tensorpull::detail {

/// A model of `hash`, so that ranges of images can be fed to it; digest() has its first eight bytes, value() all of
/// them.
class sha256_hash {
 public:
  static constexpr digest_kind kind = digest_kind::none;

  void update(std::span<const std::byte> bytes) noexcept {
    length_ += bytes.size();
    if (held_ > 0) {
      const std::size_t n = std::min(bytes.size(), block_.size() - held_);
      std::memcpy(block_.data() + held_, bytes.data(), n);
      held_ += n;
      bytes = bytes.subspan(n);
      if (held_ < block_.size()) return;
      compress(block_.data());
      held_ = 0;
    }
    for (; bytes.size() >= block_.size(); bytes = bytes.subspan(block_.size())) compress(bytes.data());
    if (!bytes.empty()) std::memcpy(block_.data(), bytes.data(), bytes.size());
    held_ = bytes.size();
  }
  sha256_value value() const noexcept {
    sha256_hash last = *this;
    const std::uint64_t bits = length_ * 8;
    std::array<std::byte, 72> end{std::byte{0x80}};
    const std::size_t zeros = (held_ < 56 ? 55 : 119) - held_;
    for (std::size_t i = 0; i < 8; ++i) end[1 + zeros + i] = static_cast<std::byte>(bits >> (56 - 8 * i) & 0xff);
    last.update(std::span(end).first(1 + zeros + 8));
    sha256_value out{};
    for (std::size_t i = 0; i < 32; ++i)
      out[i] = static_cast<std::byte>(last.state_[i / 4] >> (24 - 8 * (i % 4)) & 0xff);
    return out;
  }
  std::uint64_t digest() const noexcept {
    const auto all = value();
    std::uint64_t out = 0;
    for (std::size_t i = 0; i < 8; ++i) out = out << 8 | std::to_integer<std::uint64_t>(all[i]);
    return out;
  }

 private:
  /// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
  static constexpr std::array<std::uint32_t, 64> k_{
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
      0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
      0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
      0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
      0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
      0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
      0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
      0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

  void compress(const std::byte* at) noexcept {
    std::array<std::uint32_t, 64> w;
    for (std::size_t i = 0; i < 16; ++i)
      w[i] = std::to_integer<std::uint32_t>(at[4 * i]) << 24 | std::to_integer<std::uint32_t>(at[4 * i + 1]) << 16 |
             std::to_integer<std::uint32_t>(at[4 * i + 2]) << 8 | std::to_integer<std::uint32_t>(at[4 * i + 3]);
    for (std::size_t i = 16; i < 64; ++i) {
      const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3,
                          s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state_;
    for (std::size_t i = 0; i < 64; ++i) {
      const std::uint32_t t1 = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) +
                               k_[i] + w[i];
      const std::uint32_t t2 = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
    }
    const std::array<std::uint32_t, 8> add{a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < 8; ++i) state_[i] += add[i];
  }

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> block_{};
  std::uint64_t length_ = 0;
  std::size_t held_ = 0;
};
static_assert(hash<sha256_hash>);

}  // namespace tensorpull::detail
