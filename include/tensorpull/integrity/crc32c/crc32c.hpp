// CRC32C with each chunk, by the processor's instructions for it: SSE4.2 and vectors of carry-less products on x86-64,
// and ARMv8's if the compiler may use it. Every other processor looks it up in a table (core/crc32c.hpp).
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/crc32c.hpp>
#include <tensorpull/integrity/xxhash/policies.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tensorpull {

namespace detail {

/// The instruction takes a word in each cycle, but its result is ready after three. So three parts of this many bytes
/// are taken in turn, and then joined.
inline constexpr std::size_t crc32c_part_bytes = 4096;

/// The CRC after as many zeros as a part has bytes, for each of its eight half bytes.
inline constexpr auto crc32c_zeros = [] {
  std::array<std::uint32_t, 32> of_bit{};
  const auto apply = [](const std::array<std::uint32_t, 32>& columns, std::uint32_t crc) {
    std::uint32_t sum = 0;
    for (std::uint32_t bit = 0; bit < 32; ++bit)
      if ((crc >> bit & 1) != 0) sum ^= columns[bit];
    return sum;
  };
  for (std::uint32_t bit = 0; bit < 32; ++bit) {  // one byte
    const std::uint32_t crc = std::uint32_t{1} << bit;
    of_bit[bit] = crc >> 8 ^ crc32c_table[crc & 0xff];
  }
  for (std::size_t bytes = 1; bytes < crc32c_part_bytes; bytes *= 2) {
    const auto half = of_bit;
    for (std::uint32_t& column : of_bit) column = apply(half, column);
  }
  std::array<std::array<std::uint32_t, 16>, 8> table{};
  for (std::uint32_t place = 0; place < 8; ++place)
    for (std::uint32_t value = 0; value < 16; ++value) table[place][value] = apply(of_bit, value << (4 * place));
  return table;
}();
constexpr std::uint32_t crc32c_behind_zeros(std::uint32_t crc) noexcept {
  std::uint32_t sum = 0;
  for (std::uint32_t place = 0; place < 8; ++place) sum ^= crc32c_zeros[place][crc >> (4 * place) & 15];
  return sum;
}

#if defined(__x86_64__) || (defined(__aarch64__) && defined(__ARM_FEATURE_CRC32))
#if defined(__x86_64__)
inline bool has_crc32c() noexcept { return __builtin_cpu_supports("sse4.2"); }
[[gnu::target("sse4.2"), gnu::always_inline]] inline std::uint32_t crc32c_word(std::uint32_t crc,
                                                                               const std::byte* p) noexcept {
  return static_cast<std::uint32_t>(__builtin_ia32_crc32di(crc, load_le64(p)));
}
[[gnu::target("sse4.2"), gnu::always_inline]] inline std::uint32_t crc32c_byte(std::uint32_t crc,
                                                                               std::byte b) noexcept {
  return __builtin_ia32_crc32qi(crc, static_cast<unsigned char>(b));
}
[[gnu::target("sse4.2")]]
#else
inline bool has_crc32c() noexcept { return true; }
#if defined(__clang__)
inline std::uint32_t crc32c_word(std::uint32_t crc, const std::byte* p) noexcept {
  return __builtin_arm_crc32cd(crc, load_le64(p));
}
inline std::uint32_t crc32c_byte(std::uint32_t crc, std::byte b) noexcept {
  return __builtin_arm_crc32cb(crc, static_cast<unsigned char>(b));
}
#else
inline std::uint32_t crc32c_word(std::uint32_t crc, const std::byte* p) noexcept {
  return __builtin_aarch64_crc32cx(crc, load_le64(p));
}
inline std::uint32_t crc32c_byte(std::uint32_t crc, std::byte b) noexcept {
  return __builtin_aarch64_crc32cb(crc, static_cast<unsigned char>(b));
}
#endif
#endif
/// As crc32c_fast::of. Requires has_crc32c().
inline std::uint32_t crc32c_by_instruction(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  const std::byte* p = bytes.data();
  std::size_t left = bytes.size();
  std::uint32_t crc = ~before;
  for (; left >= 3 * crc32c_part_bytes; left -= 3 * crc32c_part_bytes) {
    std::uint32_t second = 0, third = 0;
    for (const std::byte* const end = p + crc32c_part_bytes; p != end; p += 8) {
      crc = crc32c_word(crc, p);
      second = crc32c_word(second, p + crc32c_part_bytes);
      third = crc32c_word(third, p + 2 * crc32c_part_bytes);
    }
    crc = crc32c_behind_zeros(crc32c_behind_zeros(crc) ^ second) ^ third;
    p += 2 * crc32c_part_bytes;
  }
  for (; left >= 8; left -= 8) {
    crc = crc32c_word(crc, p);
    p += 8;
  }
  for (; left > 0; --left) crc = crc32c_byte(crc, *p++);
  return ~crc;
}
#else
inline bool has_crc32c() noexcept { return false; }
inline std::uint32_t crc32c_by_instruction(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  return crc32c_fast::of(bytes, before);
}
#endif

#if defined(__x86_64__)
/// The factors of the halves of 16 bytes in a carry-less product that brings them so many bytes on: the powers of x by
/// 32 bits more and by 32 bits less, for the first half and for the second, with their bits reversed.
constexpr std::array<std::uint64_t, 2> crc32c_powers(std::size_t bytes) noexcept {
  const auto power = [](std::size_t n) {
    std::uint32_t p = 0x80000000;
    for (; n > 0; --n) p = p >> 1 ^ ((p & 1) != 0 ? 0x82f63b78u : 0u);
    return std::uint64_t{p} << 1;
  };
  return {power(8 * bytes + 32), power(8 * bytes - 32)};
}

inline constexpr std::size_t crc32c_least_vectors = 256;  ///< what crc32c_by_vectors() takes in a step
inline bool has_crc32c_vectors() noexcept {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq") && has_crc32c();
}
/// The two numbers in each 16 bytes of a vector.
[[gnu::target("avx512f"), gnu::always_inline]] inline __m512i crc32c_both(
    const std::array<std::uint64_t, 2>& numbers) noexcept {
  const auto first = static_cast<long long>(numbers[0]), second = static_cast<long long>(numbers[1]);
  return _mm512_set_epi64(second, first, second, first, second, first, second, first);
}
/// Adds to `next` what `sum` is, `by` bytes on.
[[gnu::target("avx512f,vpclmulqdq"), gnu::always_inline]] inline __m512i crc32c_fold(__m512i sum, __m512i by,
                                                                                     __m512i next) noexcept {
  const __m512i first = _mm512_clmulepi64_epi128(sum, by, 0x00), second = _mm512_clmulepi64_epi128(sum, by, 0x11);
  return _mm512_ternarylogic_epi64(first, second, next, 0x96);  // all three, by exclusive or
}
/// As crc32c_fast::of, for at least crc32c_least_vectors bytes. Requires has_crc32c_vectors().
[[gnu::target("avx512f,vpclmulqdq,sse4.2")]]
inline std::uint32_t crc32c_by_vectors(std::span<const std::byte> bytes, std::uint32_t before) noexcept {
  constexpr auto whole = crc32c_powers(256), vector = crc32c_powers(64);
  const __m512i by_whole = crc32c_both(whole), by_vector = crc32c_both(vector);
  const std::byte* p = bytes.data();
  std::size_t left = bytes.size();
  __m512i sums[4];
#pragma GCC unroll 4
  for (std::size_t i = 0; i < 4; ++i) sums[i] = _mm512_loadu_si512(p + 64 * i);
  sums[0] = _mm512_xor_si512(sums[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(~before))));
  for (p += 256, left -= 256; left >= 256; left -= 256) {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) sums[i] = crc32c_fold(sums[i], by_whole, _mm512_loadu_si512(p + 64 * i));
    p += 256;
  }
#pragma GCC unroll 3
  for (std::size_t i = 1; i < 4; ++i) sums[i] = crc32c_fold(sums[i - 1], by_vector, sums[i]);
  alignas(64) std::byte last[64];  // as a message that has the same CRC
  _mm512_store_si512(last, sums[3]);
  const std::uint32_t crc = crc32c_by_instruction(last, ~std::uint32_t{0});
  return crc32c_by_instruction({p, left}, crc);
}
#endif

}  // namespace detail

/// CRC32C by the processor's instruction, or as crc32c_fast if it has none.
struct crc32c_of_processor {
  /// As crc32c_fast's. Cost: with the instruction a tenth of a nanosecond for each byte or less, with the table two.
  static std::uint32_t of(std::span<const std::byte> bytes, std::uint32_t crc = 0) noexcept {
#if defined(__x86_64__)
    if (bytes.size() >= detail::crc32c_least_vectors && detail::has_crc32c_vectors())
      return detail::crc32c_by_vectors(bytes, crc);
#endif
    return detail::has_crc32c() ? detail::crc32c_by_instruction(bytes, crc) : crc32c_fast::of(bytes, crc);
  }
};
/// The CRC32C of hosts.
using crc32c = basic_crc32c<crc32c_of_processor>;

/// CRC32C with each chunk, no digest of the whole; the outcome is `completed_unverified`.
struct chunk_crc32c {
  using is_integrity_policy = void;
  using hash_type = detail::no_hash;
  using chunk_hash_type = crc32c;
  static constexpr bool whole = false;
  static constexpr bool per_chunk = true;
};

/// CRC32C with each chunk, XXH3-64 of the whole: for a consumer that cannot undo, with the cheaper check before it
/// takes a chunk.
template <hash Hash = xxhash_digest>
struct basic_chunk_crc32c_and_image_digest {
  using is_integrity_policy = void;
  using hash_type = Hash;
  using chunk_hash_type = crc32c;
  static constexpr bool whole = true;
  static constexpr bool per_chunk = true;
};
/// With the xxHash library's XXH3-64.
using chunk_crc32c_and_image_digest = basic_chunk_crc32c_and_image_digest<>;

static_assert(hash<crc32c> && integrity_policy<chunk_crc32c> && integrity_policy<chunk_crc32c_and_image_digest>);
static_assert(chunk_digest_kind<chunk_crc32c> == digest_kind::crc32c &&
              chunk_digest_kind<chunk_digest> == digest_kind::xxh3_64 &&
              chunk_digest_kind<image_digest> == digest_kind::none);

}  // namespace tensorpull
