// XXH3-64 with seed 0, streaming, in constant evaluation and on any target: for fingerprints and for devices. Hosts
// hash bulk data with the same code and vectors (integrity/xxhash/xxhash_digest.hpp).
//
// Written from the specification, https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md (section "XXH3
// Algorithm Overview").
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/digest_kind.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace tensorpull {

namespace detail::xxh3 {

// The default secret, as little-endian words. The algorithm reads most of it, but not all, at multiples of eight bytes.
// Plain arrays throughout: in constant evaluation each operator[] of std::array is two calls.
// clang-format off: a table
inline constexpr std::uint64_t secret_words[24] = {
    0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de,
    0x1f67b3b7a4a44072, 0x78e5c0cc4ee679cb, 0x2172ffcc7dd05a82,
    0x8e2443f7744608b8, 0x4c263a81e69035e0, 0xcb00c391bb52283c,
    0xa32e531b8b65d088, 0x4ef90da297486471, 0xd8acdea946ef1938,
    0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a,
    0x647378d9c97e9fc8, 0xc3ebd33483acc5ea, 0xeb6313faffa081c5,
    0x49daf0b751dd0d17, 0x9e68d429265516d3, 0xfca1477d58be162b,
    0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af,
};
// clang-format on

/// The same as bytes: a load at any position is less code than two words and a shift.
inline constexpr struct secret_text {
  std::byte at[192]{};
  constexpr secret_text() noexcept {
    for (std::size_t i = 0; i < 192; ++i) at[i] = static_cast<std::byte>(secret_words[i / 8] >> i % 8 * 8 & 0xff);
  }
} secret_bytes;

constexpr std::uint64_t secret(std::size_t byte) noexcept {
  if (!std::is_constant_evaluated()) return load_le64(secret_bytes.at + byte);
  const std::size_t word = byte / 8, shift = byte % 8 * 8;
  return shift == 0 ? secret_words[word] : (secret_words[word] >> shift) | (secret_words[word + 1] << (64 - shift));
}

inline constexpr std::uint64_t prime32_1 = 0x9E3779B1, prime32_2 = 0x85EBCA77, prime32_3 = 0xC2B2AE3D;
inline constexpr std::uint64_t prime64_1 = 0x9E3779B185EBCA87, prime64_2 = 0xC2B2AE3D27D4EB4F,
                               prime64_3 = 0x165667B19E3779F9;
inline constexpr std::uint64_t prime64_4 = 0x85EBCA77C2B2AE63, prime64_5 = 0x27D4EB2F165667C5;
inline constexpr std::uint64_t prime_mx1 = 0x165667919E3779F9, prime_mx2 = 0x9FB21C651E98DF25;

constexpr std::uint64_t swap64(std::uint64_t x) noexcept {
  x = (x & 0x00ff00ff00ff00ff) << 8 | (x >> 8 & 0x00ff00ff00ff00ff);
  x = (x & 0x0000ffff0000ffff) << 16 | (x >> 16 & 0x0000ffff0000ffff);
  return x << 32 | x >> 32;
}

constexpr std::uint64_t multiply_and_fold(std::uint64_t a, std::uint64_t b) noexcept {
#ifdef __SIZEOF_INT128__
  __extension__ using wide = unsigned __int128;
  const wide product = static_cast<wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
#else
  const std::uint64_t a0 = a & 0xffffffff, a1 = a >> 32, b0 = b & 0xffffffff, b1 = b >> 32;
  const std::uint64_t low = a0 * b0, cross = a1 * b0 + (low >> 32), middle = a0 * b1 + (cross & 0xffffffff);
  return (middle << 32 | (low & 0xffffffff)) ^ (a1 * b1 + (cross >> 32) + (middle >> 32));
#endif
}

constexpr std::uint64_t avalanche(std::uint64_t h) noexcept {
  h = (h ^ h >> 37) * prime_mx1;
  return h ^ h >> 32;
}
constexpr std::uint64_t avalanche64(std::uint64_t h) noexcept {
  h = (h ^ h >> 33) * prime64_2;
  h = (h ^ h >> 29) * prime64_3;
  return h ^ h >> 32;
}

template <class Byte>
constexpr std::uint64_t mix16(const Byte* p, std::size_t at) noexcept {
  return multiply_and_fold(load_le64(p) ^ secret(at), load_le64(p + 8) ^ secret(at + 8));
}

inline constexpr std::size_t longest_short = 240, stripe_bytes = 64, block_stripes = 16;

/// Inputs of at most longest_short bytes.
template <class Byte>
constexpr std::uint64_t hash_short(const Byte* p, std::size_t n) noexcept {
  if (n == 0) return avalanche64(secret(56) ^ secret(64));
  if (n <= 3) {
    const std::uint64_t combined = octet(p[0]) << 16 | octet(p[n / 2]) << 24 | octet(p[n - 1]) | std::uint64_t{n} << 8;
    return avalanche64(combined ^ ((secret(0) ^ secret(4)) & 0xffffffff));
  }
  if (n <= 8) {
    std::uint64_t h = (load_le32(p + n - 4) + (load_le32(p) << 32)) ^ secret(8) ^ secret(16);
    h = (h ^ std::rotl(h, 49) ^ std::rotl(h, 24)) * prime_mx2;
    h = (h ^ ((h >> 35) + n)) * prime_mx2;
    return h ^ h >> 28;
  }
  if (n <= 16) {
    const std::uint64_t low = load_le64(p) ^ secret(24) ^ secret(32),
                        high = load_le64(p + n - 8) ^ secret(40) ^ secret(48);
    return avalanche(n + swap64(low) + high + multiply_and_fold(low, high));
  }
  std::uint64_t sum = n * prime64_1;
  if (n <= 128) {
    for (std::size_t i = (n - 1) / 32 + 1; i-- > 0;)
      sum += mix16(p + 16 * i, 32 * i) + mix16(p + n - 16 * (i + 1), 32 * i + 16);
    return avalanche(sum);
  }
  for (std::size_t i = 0; i < 8; ++i) sum += mix16(p + 16 * i, 16 * i);
  sum = avalanche(sum);
  for (std::size_t i = 8; i < n / 16; ++i) sum += mix16(p + 16 * i, 16 * (i - 8) + 3);
  return avalanche(sum + mix16(p + n - 16, 119));
}

/// The state of a long input: eight lanes, fed with stripes of 64 bytes.
struct lanes {
  std::uint64_t at[8] = {prime32_3, prime64_1, prime64_2, prime64_3, prime64_4, prime32_2, prime64_5, prime32_1};

  /// Adds to `at`. Not a member's function: g++ -Os makes more code of that.
  static constexpr void add(std::uint64_t* at, std::size_t i, std::uint64_t value, std::uint64_t key) noexcept {
    key ^= value;
    at[i ^ 1] += value;
    at[i] += (key & 0xffffffff) * (key >> 32);
  }
  /// A full stripe, which begins at byte `from` of the input; word(i) is its i-th word.
  template <class Word>
  constexpr void consume(std::size_t from, Word word) noexcept {
    const std::size_t stripe = from / stripe_bytes % block_stripes;
    for (std::size_t i = 0; i < 8; ++i) add(at, i, word(i), secret(8 * (stripe + i)));
    if (stripe < block_stripes - 1) return;
    for (std::size_t i = 0; i < 8; ++i) at[i] = (at[i] ^ at[i] >> 47 ^ secret(8 * (block_stripes + i))) * prime32_1;
  }
  /// The last 64 bytes of the input, of which a part may have been consumed before; then the result.
  template <class Word>
  [[gnu::always_inline]] constexpr std::uint64_t finish(Word word, std::uint64_t total) noexcept {
    for (std::size_t i = 0; i < 8; ++i) add(at, i, word(i), secret(121 + 8 * i));
    std::uint64_t sum = total * prime64_1;
    for (std::size_t i = 0; i < 8; i += 2)
      sum += multiply_and_fold(at[i] ^ secret(11 + 8 * i), at[i + 1] ^ secret(19 + 8 * i));
    return avalanche(sum);
  }
};

/// Takes the whole stripes of `bytes` bytes at p, which begin at byte `from` of the input: one word at a time, on any
/// machine and in constant evaluation.
struct by_words {
  template <class Byte>
  [[gnu::always_inline]] static constexpr void take(lanes& to, std::size_t from, const Byte* p,
                                                    std::size_t bytes) noexcept {
    for (; bytes >= stripe_bytes; bytes -= stripe_bytes, from += stripe_bytes, p += stripe_bytes)
      to.consume(from, [p](std::size_t i) { return load_le64(p + 8 * i); });
  }
};

/// The hash of the first `n` bytes of little-endian words: far fewer steps of constant evaluation than one of bytes.
constexpr std::uint64_t hash_of_words(const std::uint64_t* words, std::size_t n) noexcept {
  if (n <= longest_short) {
    unsigned char bytes[longest_short]{};
    for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<unsigned char>(words[i / 8] >> i % 8 * 8 & 0xff);
    return hash_short(bytes, n);
  }
  lanes all;
  const std::uint64_t* p = words;
  for (std::size_t at = 0; at + stripe_bytes < n; at += stripe_bytes, p += 8)
    all.consume(at, [p](std::size_t i) { return p[i]; });
  p = words + (n - stripe_bytes) / 8;
  const std::size_t shift = n % 8 * 8;
  return all.finish([p, shift](std::size_t i) { return shift == 0 ? p[i] : p[i] >> shift | p[i + 1] << (64 - shift); },
                    n);
}

}  // namespace detail::xxh3

/// The running XXH3-64 of a sequence of bytes, which may arrive in pieces of any size. Trivially copyable. `Kept`: how
/// many of the newest bytes it keeps, a power of two; with fewer than 256 it lacks the code for short inputs. `Take`:
/// how it takes whole stripes.
template <std::size_t Kept, class Take = detail::xxh3::by_words>
class basic_xxh3_64 {
  static constexpr bool any_length = Kept > detail::xxh3::longest_short;
  static constexpr std::size_t stripe_bytes = detail::xxh3::stripe_bytes;
  static constexpr std::size_t batch = any_length ? Kept : stripe_bytes;  // so many bytes are taken at a time
  using count = std::conditional_t<any_length, std::uint64_t, std::uint32_t>;

  // Ahead of the public part: clang 14 evaluates a member template at compile time only below its definition.
  template <class Byte>
  static constexpr void copy(std::byte* to, const Byte* from, std::size_t n) noexcept {
    if (!std::is_constant_evaluated()) return void(std::memcpy(to, from, n));
    for (std::size_t i = 0; i < n; ++i) to[i] = static_cast<std::byte>(from[i]);
  }
  template <class Byte>
  [[gnu::noinline]] constexpr void absorb(const Byte* p, std::size_t n) noexcept {
    while (n > 0) {
      const auto at = static_cast<std::size_t>(total_);
      const std::size_t held = at % batch;
      // Bytes are taken when the next one arrives: the last ones of the input are not taken like the others.
      if (held == 0 && total_ != 0) Take::take(lanes_, at - batch, kept_ + (at - batch) % Kept, batch);
      if (any_length && held == 0 && n > batch + stripe_bytes) {  // in place, but for more than a stripe
        const std::size_t bytes = (n - stripe_bytes - 1) / batch * batch;
        Take::take(lanes_, at, p, bytes);
        p += bytes, n -= bytes, total_ += static_cast<count>(bytes);
      }
      const std::size_t part = n < batch - held ? n : batch - held;
      copy(kept_ + at % Kept, p, part);
      p += part, n -= part, total_ += static_cast<count>(part);
    }
  }
  /// The i-th of the newest 8 words.
  constexpr std::uint64_t newest(std::size_t i) const noexcept {
    const std::size_t at = static_cast<std::size_t>(total_) - stripe_bytes + 8 * i;
    if (any_length && at % Kept <= Kept - 8) return load_le64(kept_ + at % Kept);
    std::byte word[8]{};
    for (std::size_t k = 0; k < 8; ++k) word[k] = kept_[(at + k) % Kept];
    return load_le64(word);
  }

 public:
  static constexpr digest_kind kind = digest_kind::xxh3_64;  ///< as integrity policies name it
  static constexpr std::size_t least_bytes = any_length ? 0 : detail::xxh3::longest_short + 1;  ///< of an input

  /// Of no bytes yet.
  constexpr basic_xxh3_64() noexcept {
    // Of an input of any length no byte is read that was not written.
    if (!any_length || std::is_constant_evaluated())
      for (auto& b : kept_) b = {};
  }
  /// Begins anew.
  constexpr void reset() noexcept { *this = {}; }

  /// Adds bytes.
  constexpr void update(std::span<const std::byte> bytes) noexcept { absorb(bytes.data(), bytes.size()); }
  /// Adds the bytes of a text.
  constexpr void update(std::string_view text) noexcept { absorb(text.data(), text.size()); }
  /// Adds n bytes.
  constexpr void update(const char* characters, std::size_t n) noexcept { absorb(characters, n); }

  /// The hash of all bytes so far; the state does not change.
  [[gnu::noinline]] constexpr std::uint64_t digest() const noexcept {
    if constexpr (any_length)
      if (total_ <= detail::xxh3::longest_short)
        return detail::xxh3::hash_short(kept_, static_cast<std::size_t>(total_));
    detail::xxh3::lanes last = lanes_;
    if constexpr (batch > stripe_bytes) {
      const auto held = static_cast<std::size_t>(total_ - 1) % batch;
      Take::take(last, static_cast<std::size_t>(total_ - 1) - held, kept_, held);
    }
    return last.finish([this](std::size_t i) { return newest(i); }, total_);
  }

 private:
  detail::xxh3::lanes lanes_{};
  count total_ = 0;
  std::byte kept_[Kept];
};

/// Of any input. 328 bytes.
using xxh3_64 = basic_xxh3_64<256>;
/// Of 241 bytes to 4 GiB, in a third of the code and 200 bytes; of fewer bytes the digest is another number.
using lean_xxh3_64 = basic_xxh3_64<128>;

static_assert(xxh3_64{}.digest() == 0x2d06800538d394c2);

}  // namespace tensorpull
