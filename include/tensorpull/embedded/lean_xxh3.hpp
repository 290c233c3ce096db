// XXH3-64 of long inputs, for machines on which core/xxh3.hpp is too large: a third of its code, 208 bytes of state
// instead of 344, the same digests.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/digest_kind.hpp>
#include <tensorpull/core/xxh3.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tensorpull {

namespace detail {
/// The secret as bytes, so that it can be read at any position on a machine of either byte order.
inline constexpr auto lean_secret = [] {
  std::array<unsigned char, 192> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<unsigned char>(xxh3::secret_words[i / 8] >> (8 * (i % 8)) & 0xff);
  return bytes;
}();
}  // namespace detail

/// The running XXH3-64 (seed 0) of 241 bytes to 4 GiB, which may arrive in pieces of any size. Of fewer bytes the
/// digest is another number: it lacks the code for short inputs.
class lean_xxh3_64 {
 public:
  static constexpr digest_kind kind = digest_kind::xxh3_64;  ///< As integrity policies name it.
  static constexpr std::size_t least_bytes = 241;            ///< Shorter inputs have other digests.

  /// Adds bytes.
  [[gnu::noinline]] void update(std::span<const std::byte> bytes) noexcept {
    const std::byte* from = bytes.data();
    for (std::size_t left = bytes.size(); left > 0;) {
      // A stripe is taken when the byte behind it arrives: the last one of the input is not taken like the others.
      const std::uint32_t filled = total_ % stripe_bytes;
      if (filled == 0 && total_ != 0) take((total_ - stripe_bytes) % sizeof last_);
      std::size_t n = stripe_bytes - filled;
      if (n > left) n = left;
      std::memcpy(last_ + total_ % sizeof last_, from, n);
      total_ += static_cast<std::uint32_t>(n);
      from += n;
      left -= n;
    }
  }
  /// The hash of all bytes so far; the state does not change.
  [[gnu::noinline]] std::uint64_t digest() const noexcept {
    std::uint64_t at[8];
    std::memcpy(at, at_, sizeof at);
    // The last 64 bytes of the input, wherever they lie in the buffer.
    for (std::uint32_t i = 0; i < 8; ++i) {
      std::byte word[8];
      for (std::uint32_t k = 0; k < 8; ++k) word[k] = last_[(total_ - stripe_bytes + 8 * i + k) % sizeof last_];
      add(at, i, load_le64(word), secret(121 + 8 * i));
    }
    std::uint64_t sum = total_ * detail::xxh3::prime64_1;
    for (std::uint32_t i = 0; i < 8; i += 2)
      sum += detail::xxh3::multiply_and_fold(at[i] ^ secret(11 + 8 * i), at[i + 1] ^ secret(19 + 8 * i));
    return detail::xxh3::avalanche(sum);
  }

 private:
  static constexpr std::uint32_t stripe_bytes = 64;

  static std::uint64_t secret(std::uint32_t byte) noexcept { return load_le64(detail::lean_secret.data() + byte); }
  static void add(std::uint64_t* at, std::uint32_t i, std::uint64_t value, std::uint64_t key) noexcept {
    key ^= value;
    at[i ^ 1] += value;
    at[i] += (key & 0xffffffff) * (key >> 32);
  }
  void take(std::uint32_t from) noexcept {
    for (std::uint32_t i = 0; i < 8; ++i) add(at_, i, load_le64(last_ + from + 8 * i), secret(8 * (stripe_ + i)));
    if (++stripe_ < 16) return;
    stripe_ = 0;
    for (std::uint32_t i = 0; i < 8; ++i)
      at_[i] = (at_[i] ^ at_[i] >> 47 ^ secret(128 + 8 * i)) * detail::xxh3::prime32_1;
  }

  std::uint64_t at_[8] = {detail::xxh3::prime32_3, detail::xxh3::prime64_1, detail::xxh3::prime64_2,
                          detail::xxh3::prime64_3, detail::xxh3::prime64_4, detail::xxh3::prime32_2,
                          detail::xxh3::prime64_5, detail::xxh3::prime32_1};
  std::uint32_t total_ = 0, stripe_ = 0;
  // the last two stripes, in turn; zero, so that the digest of few bytes is the same number each time
  std::byte last_[128]{};
};

}  // namespace tensorpull
