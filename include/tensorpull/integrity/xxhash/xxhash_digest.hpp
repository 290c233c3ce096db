// XXH3-64 for hosts: with the widest vectors that the processor has, chosen when the program runs. Nothing but the
// compiler is needed. Machines other than x86-64 take words.
#pragma once

#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/integrity/concept.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tensorpull {

namespace detail::xxh3 {

#if defined(__x86_64__)
// Declared ahead of their bodies, so that g++ knows the instructions which multiply() names.
[[gnu::target("avx2")]] inline void take_32(lanes& to, std::size_t from, const void* p, std::size_t bytes) noexcept;
[[gnu::target("avx512f")]] inline void take_64(lanes& to, std::size_t from, const void* p, std::size_t bytes) noexcept;

using words_16 [[gnu::vector_size(16)]] = std::uint64_t;
using words_32 [[gnu::vector_size(32)]] = std::uint64_t;
using words_64 [[gnu::vector_size(64)]] = std::uint64_t;

// An inlined function uses the instructions of its caller. Vectors are handed out by reference: g++ warns of one that a
// function returns, since its ABI would depend on the instructions.
[[gnu::always_inline]] inline void swap_words(words_16& to, const words_16& a) noexcept {
  to = __builtin_shufflevector(a, a, 1, 0);
}
[[gnu::always_inline]] inline void swap_words(words_32& to, const words_32& a) noexcept {
  to = __builtin_shufflevector(a, a, 1, 0, 3, 2);
}
[[gnu::always_inline]] inline void swap_words(words_64& to, const words_64& a) noexcept {
  to = __builtin_shufflevector(a, a, 1, 0, 3, 2, 5, 4, 7, 6);
}
/// The products of the lower halves of words.
#if defined(__clang__)
template <class Words>
[[gnu::always_inline]] inline void multiply(Words& to, const Words& a, const Words& b) noexcept {
  to = (a & 0xffffffff) * (b & 0xffffffff);
}
#else  // g++ would make three multiplications of that
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"
using halves_16 [[gnu::vector_size(16)]] = int;
using halves_32 [[gnu::vector_size(32)]] = int;
using halves_64 [[gnu::vector_size(64)]] = int;
using signed_64 [[gnu::vector_size(64)]] = long long;
[[gnu::always_inline]] inline void multiply(words_16& to, const words_16& a, const words_16& b) noexcept {
  to = (words_16)__builtin_ia32_pmuludq128((halves_16)a, (halves_16)b);
}
[[gnu::always_inline]] inline void multiply(words_32& to, const words_32& a, const words_32& b) noexcept {
  to = (words_32)__builtin_ia32_pmuludq256((halves_32)a, (halves_32)b);
}
[[gnu::always_inline]] inline void multiply(words_64& to, const words_64& a, const words_64& b) noexcept {
  to = (words_64)__builtin_ia32_pmuludq512_mask((halves_64)a, (halves_64)b, signed_64{}, 0xff);
}
#pragma GCC diagnostic pop
#endif

template <class Words>
[[gnu::always_inline]] inline void take_by(lanes& to, std::size_t from, const void* bytes, std::size_t size) noexcept {
  constexpr std::size_t n = stripe_bytes / sizeof(Words);
  const auto* p = static_cast<const std::byte*>(bytes);
  Words at[n], last_key[n];
  std::memcpy(at, to.at, stripe_bytes);
  std::memcpy(last_key, secret_bytes.at + 8 * block_stripes, stripe_bytes);
  const Words prime = Words{} + prime32_1;
  std::size_t stripe = from / stripe_bytes % block_stripes;
  for (std::size_t left = size / stripe_bytes; left > 0;) {
    const std::size_t room = block_stripes - stripe, run = left < room ? left : room;
    left -= run;
    for (const std::size_t end = stripe + run; stripe < end; ++stripe, p += stripe_bytes) {
      __builtin_prefetch(p + 512);
#pragma GCC unroll 4  // g++ -O2 does not, and then the lanes are in memory
      for (std::size_t v = 0; v < n; ++v) {
        Words data, key, swapped, product;
        std::memcpy(&data, p + v * sizeof(Words), sizeof(Words));
        std::memcpy(&key, secret_bytes.at + 8 * stripe + v * sizeof(Words), sizeof(Words));
        key ^= data;
        swap_words(swapped, data);
        multiply(product, key, key >> 32);
        at[v] += swapped + product;
      }
    }
    if (stripe < block_stripes) break;
    stripe = 0;
#pragma GCC unroll 4
    for (std::size_t v = 0; v < n; ++v) {
      const Words x = at[v] ^ at[v] >> 47 ^ last_key[v];
      Words low, high;
      multiply(low, x, prime);
      multiply(high, x >> 32, prime);
      at[v] = low + (high << 32);
    }
  }
  std::memcpy(to.at, at, stripe_bytes);
}

inline void take_16(lanes& to, std::size_t from, const void* p, std::size_t bytes) noexcept {
  take_by<words_16>(to, from, p, bytes);
}
inline void take_32(lanes& to, std::size_t from, const void* p, std::size_t bytes) noexcept {
  take_by<words_32>(to, from, p, bytes);
}
inline void take_64(lanes& to, std::size_t from, const void* p, std::size_t bytes) noexcept {
  take_by<words_64>(to, from, p, bytes);
}

/// Takes whole stripes in the fastest way that there is here.
struct by_vectors {
  static void take(lanes& to, std::size_t from, const void* p, std::size_t bytes) noexcept {
    if (__builtin_cpu_supports("avx512f")) take_64(to, from, p, bytes);
    else if (__builtin_cpu_supports("avx2")) take_32(to, from, p, bytes);
    else take_16(to, from, p, bytes);
  }
};
#else
using by_vectors = by_words;
#endif

}  // namespace detail::xxh3

/// Models hash. 328 bytes of state. Speeds are in the README of integrity. Not an alias, so that its name is short in
/// diagnostics.
class xxhash_digest : public basic_xxh3_64<256, detail::xxh3::by_vectors> {};

static_assert(hash<xxhash_digest>);

}  // namespace tensorpull
