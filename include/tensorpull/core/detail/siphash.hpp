// SipHash-2-4: a keyed hash whose values nobody can guess without the key, however many other values are known.
#pragma once

#include <tensorpull/core/byte_order.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull::detail {

/// The key of SipHash: 128 secret bits.
struct siphash_key {
  std::uint64_t low = 0;   ///< the first 8 bytes, little-endian
  std::uint64_t high = 0;  ///< the last 8 bytes
};

/// Aumasson, Bernstein: SipHash: a fast short-input PRF (2012), with 2 rounds for each word and 4 at the end.
inline std::uint64_t siphash(const siphash_key& key, std::span<const std::byte> bytes) noexcept {
  std::uint64_t a = key.low ^ 0x736f6d6570736575u, b = key.high ^ 0x646f72616e646f6du,
                c = key.low ^ 0x6c7967656e657261u, d = key.high ^ 0x7465646279746573u;
  const auto rounds = [&](int n) {
    for (; n > 0; --n) {
      a += b;
      c += d;
      b = std::rotl(b, 13) ^ a;
      d = std::rotl(d, 16) ^ c;
      a = std::rotl(a, 32);
      c += b;
      a += d;
      b = std::rotl(b, 17) ^ c;
      d = std::rotl(d, 21) ^ a;
      c = std::rotl(c, 32);
    }
  };
  const auto add = [&](std::uint64_t word) {
    d ^= word;
    rounds(2);
    a ^= word;
  };
  std::uint64_t last = std::uint64_t{bytes.size()} << 56;
  for (; bytes.size() >= 8; bytes = bytes.subspan(8)) add(load_le64(bytes.data()));
  for (std::size_t i = 0; i < bytes.size(); ++i) last |= octet(bytes[i]) << (8 * i);
  add(last);
  c ^= 0xff;
  rounds(4);
  return a ^ b ^ c ^ d;
}

}  // namespace tensorpull::detail
