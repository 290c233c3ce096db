// XXH3-64 with vectors, without the xxHash library: the digest of hosts that have to do without it, such as a program
// that travels between machines. TENSORPULL_OWN_XXH3 (an option of CMake) uses it instead of xxhash_digest.
#pragma once

#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/integrity/concept.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tensorpull {

namespace detail::vectors {

/// How many stripes are taken before the lanes are scrambled.
inline constexpr std::size_t block_stripes = 16;

/// The lanes between two calls. `stripe`: how many stripes of the block they have.
struct state {
  alignas(64) std::uint64_t lanes[8];
  std::size_t stripe;
};

/// Takes `count` whole stripes of 64 bytes, on any machine.
inline void take_anywhere(state& s, const std::byte* p, std::size_t count) noexcept {
  xxh3::lanes lanes;
  std::copy(s.lanes, s.lanes + 8, lanes.at);
  lanes.stripe = s.stripe;
  for (; count > 0; --count, p += 64) lanes.consume([p](std::size_t i) { return load_le64(p + 8 * i); });
  std::copy(lanes.at, lanes.at + 8, s.lanes);
  s.stripe = lanes.stripe;
}

#if defined(__x86_64__)
/// The same with vectors of 16 bytes, which every x86-64 has.
inline void take_16(state& s, const std::byte* p, std::size_t count) noexcept {
  __m128i lanes[4];
#pragma GCC unroll 4
  for (std::size_t v = 0; v < 4; ++v) lanes[v] = _mm_load_si128(reinterpret_cast<const __m128i*>(s.lanes) + v);
  std::size_t stripe = s.stripe;
  for (; count > 0; --count, p += 64) {
#pragma GCC unroll 4  // g++ -O2 does not, and then the lanes are in memory
    for (std::size_t v = 0; v < 4; ++v) {
      const __m128i data = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p) + v);
      const __m128i key = _mm_xor_si128(
          data, _mm_loadu_si128(reinterpret_cast<const __m128i*>(xxh3::secret_words + stripe) + v));
      lanes[v] = _mm_add_epi64(
          lanes[v], _mm_add_epi64(_mm_shuffle_epi32(data, 0x4e), _mm_mul_epu32(key, _mm_srli_epi64(key, 32))));
    }
    if (++stripe < block_stripes) continue;
    stripe = 0;
    const __m128i prime = _mm_set1_epi32(static_cast<int>(xxh3::prime32_1));
#pragma GCC unroll 4
    for (std::size_t v = 0; v < 4; ++v) {
      __m128i x = _mm_xor_si128(lanes[v], _mm_srli_epi64(lanes[v], 47));
      x = _mm_xor_si128(x, _mm_loadu_si128(reinterpret_cast<const __m128i*>(xxh3::secret_words + 16) + v));
      lanes[v] = _mm_add_epi64(_mm_mul_epu32(x, prime),
                               _mm_slli_epi64(_mm_mul_epu32(_mm_srli_epi64(x, 32), prime), 32));
    }
  }
#pragma GCC unroll 4
  for (std::size_t v = 0; v < 4; ++v) _mm_store_si128(reinterpret_cast<__m128i*>(s.lanes) + v, lanes[v]);
  s.stripe = stripe;
}

/// The same with vectors of 32 bytes: a compiler makes such instructions only of functions that ask for them, and it is
/// called only if the processor has them.
[[gnu::target("avx2")]] inline void take_32(state& s, const std::byte* p, std::size_t count) noexcept {
  __m256i lanes[2];
#pragma GCC unroll 2
  for (std::size_t v = 0; v < 2; ++v) lanes[v] = _mm256_load_si256(reinterpret_cast<const __m256i*>(s.lanes) + v);
  std::size_t stripe = s.stripe;
  for (; count > 0; --count, p += 64) {
#pragma GCC unroll 2
    for (std::size_t v = 0; v < 2; ++v) {
      const __m256i data = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p) + v);
      const __m256i key = _mm256_xor_si256(
          data, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(xxh3::secret_words + stripe) + v));
      lanes[v] = _mm256_add_epi64(lanes[v], _mm256_add_epi64(_mm256_shuffle_epi32(data, 0x4e),
                                                             _mm256_mul_epu32(key, _mm256_srli_epi64(key, 32))));
    }
    if (++stripe < block_stripes) continue;
    stripe = 0;
    const __m256i prime = _mm256_set1_epi32(static_cast<int>(xxh3::prime32_1));
#pragma GCC unroll 2
    for (std::size_t v = 0; v < 2; ++v) {
      __m256i x = _mm256_xor_si256(lanes[v], _mm256_srli_epi64(lanes[v], 47));
      x = _mm256_xor_si256(x, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(xxh3::secret_words + 16) + v));
      lanes[v] = _mm256_add_epi64(_mm256_mul_epu32(x, prime),
                                  _mm256_slli_epi64(_mm256_mul_epu32(_mm256_srli_epi64(x, 32), prime), 32));
    }
  }
#pragma GCC unroll 2
  for (std::size_t v = 0; v < 2; ++v) _mm256_store_si256(reinterpret_cast<__m256i*>(s.lanes) + v, lanes[v]);
  s.stripe = stripe;
}

/// The same with vectors of 64 bytes.
[[gnu::target("avx512f")]] inline void take_64(state& s, const std::byte* p, std::size_t count) noexcept {
  __m512i lanes = _mm512_load_si512(s.lanes);
  std::size_t stripe = s.stripe;
  for (; count > 0; --count, p += 64) {
    const __m512i data = _mm512_loadu_si512(p);
    const __m512i key = _mm512_xor_si512(data, _mm512_loadu_si512(xxh3::secret_words + stripe));
    // maskz_: the functions without a mask begin with a vector that nothing has set, and g++ 12 warns of it
    const __m512i swapped = _mm512_maskz_shuffle_epi32(0xffff, data, static_cast<_MM_PERM_ENUM>(0x4e));
    lanes = _mm512_add_epi64(
        lanes, _mm512_add_epi64(swapped, _mm512_maskz_mul_epu32(0xff, key, _mm512_maskz_srli_epi64(0xff, key, 32))));
    if (++stripe < block_stripes) continue;
    stripe = 0;
    const __m512i prime = _mm512_set1_epi32(static_cast<int>(xxh3::prime32_1));
    __m512i x = _mm512_xor_si512(lanes, _mm512_maskz_srli_epi64(0xff, lanes, 47));
    x = _mm512_xor_si512(x, _mm512_loadu_si512(xxh3::secret_words + 16));
    const __m512i high = _mm512_maskz_mul_epu32(0xff, _mm512_maskz_srli_epi64(0xff, x, 32), prime);
    lanes = _mm512_add_epi64(_mm512_maskz_mul_epu32(0xff, x, prime), _mm512_maskz_slli_epi64(0xff, high, 32));
  }
  _mm512_store_si512(s.lanes, lanes);
  s.stripe = stripe;
}
#endif

/// Takes stripes in the fastest way that there is here.
inline void take(state& s, const std::byte* p, std::size_t count) noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) take_64(s, p, count);
  else if (__builtin_cpu_supports("avx2")) take_32(s, p, count);
  else take_16(s, p, count);
#else
  take_anywhere(s, p, count);
#endif
}

}  // namespace detail::vectors

/// Models hash. 384 bytes of state, aligned to 64. The values are those of xxh3_64 and of the xxHash library; the
/// README of integrity has the speed. No heap; needs nothing but the compiler.
class vector_xxh3 {
  static constexpr std::size_t stripe_bytes = 64, buffer_bytes = 256;

 public:
  static constexpr digest_kind kind = digest_kind::xxh3_64;  ///< its name in frames

  /// Of no bytes yet.
  vector_xxh3() noexcept { reset(); }
  /// Begins anew.
  void reset() noexcept {
    std::copy_n(xxh3_lanes.at, 8, state_.lanes);
    state_.stripe = 0;
    total_ = 0, held_ = 0;
  }

  /// Adds bytes.
  void update(std::span<const std::byte> bytes) noexcept {
    const std::byte* p = bytes.data();
    std::size_t n = bytes.size();
    total_ += n;
    while (n > 0) {
      if (held_ == buffer_bytes) detail::vectors::take(state_, buffer_, buffer_bytes / stripe_bytes), held_ = 0;
      // The buffer keeps the newest bytes, so the input is taken in place only while more than a buffer of it follows.
      if (held_ == 0 && n > buffer_bytes + stripe_bytes) {
        const std::size_t stripes = (n - buffer_bytes - 1) / stripe_bytes;
        detail::vectors::take(state_, p, stripes);
        p += stripes * stripe_bytes, n -= stripes * stripe_bytes;
      }
      const std::size_t part = std::min(n, buffer_bytes - held_);
      std::memcpy(buffer_ + held_, p, part);
      held_ += part, p += part, n -= part;
    }
  }

  /// The hash of all bytes so far; the state does not change.
  std::uint64_t digest() const noexcept {
    if (total_ <= 240)
      return detail::xxh3::hash_short(reinterpret_cast<const unsigned char*>(buffer_),
                                      static_cast<std::size_t>(total_));
    detail::vectors::state last = state_;
    detail::vectors::take(last, buffer_, (held_ - 1) / stripe_bytes);
    // If the buffer holds less than a stripe, the bytes before it are still at the buffer's end.
    std::byte tail[stripe_bytes];
    const std::size_t old = held_ < stripe_bytes ? stripe_bytes - held_ : 0, young = stripe_bytes - old;
    std::memcpy(tail, buffer_ + buffer_bytes - old, old);
    std::memcpy(tail + old, buffer_ + held_ - young, young);
    detail::xxh3::lanes lanes;
    std::copy_n(last.lanes, 8, lanes.at);
    return lanes.finish([&tail](std::size_t i) { return load_le64(tail + 8 * i); }, total_);
  }

 private:
  static constexpr detail::xxh3::lanes xxh3_lanes{};  // what they begin with

  detail::vectors::state state_;
  std::uint64_t total_ = 0;
  std::size_t held_ = 0;
  std::byte buffer_[buffer_bytes];
};

static_assert(hash<vector_xxh3>);

}  // namespace tensorpull
