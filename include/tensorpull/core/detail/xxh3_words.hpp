// XXH3-64 of bytes that are packed into words, which takes far fewer steps of constant evaluation. It is used for
// static fingerprints.
#pragma once

#include <tensorpull/core/xxh3.hpp>

#include <cstddef>
#include <cstdint>

namespace tensorpull::detail {

/// Appends numbers of 1 to 8 bytes to an array of little-endian words, which must be long enough and zero.
class word_packer {
 public:
  explicit constexpr word_packer(std::uint64_t* words) noexcept : word_(words) {}

  /// The bytes of `value` above n must be zero.
  constexpr void append(std::uint64_t value, unsigned n) noexcept {
    *word_ |= value << shift_;
    shift_ += 8 * n;
    if (shift_ < 64) return;
    ++word_;
    shift_ -= 64;
    if (shift_ != 0) *word_ = value >> (8 * n - shift_);
  }

 private:
  std::uint64_t* word_;
  unsigned shift_ = 0;
};

/// The same as xxh3_64 gives for the first `n` bytes of the words, each little-endian.
constexpr std::uint64_t xxh3_64_of_words(const std::uint64_t* words, std::size_t n) noexcept {
  if (n <= 240) {
    unsigned char bytes[240]{};
    for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<unsigned char>(words[i / 8] >> i % 8 * 8 & 0xff);
    return xxh3::hash_short(bytes, n);
  }
  xxh3::lanes lanes;
  for (std::size_t stripe = 0; stripe < (n - 1) / 64; ++stripe) {
    const std::uint64_t* const p = words + 8 * stripe;
    lanes.consume([p](std::size_t i) { return p[i]; });
  }
  const std::size_t last = n - 64;
  const std::uint64_t* const p = words + last / 8;
  const std::size_t shift = last % 8 * 8;
  return lanes.finish(
      [p, shift](std::size_t i) { return shift == 0 ? p[i] : p[i] >> shift | p[i + 1] << (64 - shift); }, n);
}

}  // namespace tensorpull::detail
