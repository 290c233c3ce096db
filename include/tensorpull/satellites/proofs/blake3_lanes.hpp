// BLAKE3 for hosts: 4, 8 or 16 chunks at a time, as the processor's vectors have room. Nothing but the compiler is
// needed.
#pragma once

#include <tensorpull/satellites/proofs/blake3.hpp>

#include <cstring>

namespace tensorpull {

namespace detail::blake3 {

#if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
using lanes_4 [[gnu::vector_size(16)]] = std::uint32_t;
using lanes_8 [[gnu::vector_size(32)]] = std::uint32_t;
using lanes_16 [[gnu::vector_size(64)]] = std::uint32_t;

/// The first halves of two vectors, number by number in turn, and their second halves. By reference, as in
/// xxhash_digest.hpp.
[[gnu::always_inline]] inline void interleave(lanes_4& low, lanes_4& high, const lanes_4& a,
                                              const lanes_4& b) noexcept {
  low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
}
[[gnu::always_inline]] inline void interleave(lanes_8& low, lanes_8& high, const lanes_8& a,
                                              const lanes_8& b) noexcept {
  low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
[[gnu::always_inline]] inline void interleave(lanes_16& low, lanes_16& high, const lanes_16& a,
                                              const lanes_16& b) noexcept {
  low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  high = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

/// Rows become columns: of as many vectors as each has numbers.
template <class Lanes>
[[gnu::always_inline]] inline void transpose(Lanes* rows) noexcept {
  constexpr std::size_t n = sizeof(Lanes) / 4;
#pragma GCC unroll 4
  for (std::size_t step = 1; step < n; step *= 2) {
    Lanes next[n];
#pragma GCC unroll 8
    for (std::size_t i = 0; i < n / 2; ++i) interleave(next[2 * i], next[2 * i + 1], rows[i], rows[i + n / 2]);
#pragma GCC unroll 16
    for (std::size_t i = 0; i < n; ++i) rows[i] = next[i];
  }
}

/// The chaining values of as many inputs as Lanes has numbers, each of `blocks` blocks: `stride` bytes lie from one
/// input's beginning to the next. `counted`: each is a chunk with a number of its own, from `first` on.
template <class Lanes>
[[gnu::always_inline]] inline void hash_lanes(words* out, const std::byte* p, std::size_t stride, std::size_t blocks,
                                              std::uint64_t first, bool counted, std::uint32_t flags,
                                              std::uint32_t first_flags, std::uint32_t last_flags) noexcept {
  constexpr std::size_t n = sizeof(Lanes) / 4, vectors = 16 / n;
  // not in a loop, behind which g++ -O3 takes them for uninitialized
  Lanes low{}, high{}, cv[8]{Lanes{} + initial[0], Lanes{} + initial[1], Lanes{} + initial[2], Lanes{} + initial[3],
                             Lanes{} + initial[4], Lanes{} + initial[5], Lanes{} + initial[6], Lanes{} + initial[7]};
  if (counted)
    for (std::size_t i = 0; i < n; ++i) {
      low[i] = static_cast<std::uint32_t>(first + i);
      high[i] = static_cast<std::uint32_t>((first + i) >> 32);
    }
  for (std::size_t b = 0; b < blocks; ++b) {
    Lanes m[16];
#pragma GCC unroll 4
    for (std::size_t v = 0; v < vectors; ++v) {
      Lanes rows[n];
#pragma GCC unroll 16
      for (std::size_t i = 0; i < n; ++i)
        std::memcpy(&rows[i], p + i * stride + b * block_bytes + v * sizeof(Lanes), sizeof(Lanes));
      transpose(rows);
#pragma GCC unroll 16
      for (std::size_t i = 0; i < n; ++i) m[v * n + i] = rows[i];
    }
    const std::uint32_t f = flags | (b == 0 ? first_flags : 0) | (b + 1 == blocks ? last_flags : 0);
    Lanes v[16]{cv[0],
                cv[1],
                cv[2],
                cv[3],
                cv[4],
                cv[5],
                cv[6],
                cv[7],
                Lanes{} + initial[0],
                Lanes{} + initial[1],
                Lanes{} + initial[2],
                Lanes{} + initial[3],
                low,
                high,
                Lanes{} + std::uint32_t{block_bytes},
                Lanes{} + f};
    round(v, m, schedule.at[0]);
    round(v, m, schedule.at[1]);
    round(v, m, schedule.at[2]);
    round(v, m, schedule.at[3]);
    round(v, m, schedule.at[4]);
    round(v, m, schedule.at[5]);
    round(v, m, schedule.at[6]);
#pragma GCC unroll 8
    for (std::size_t i = 0; i < 8; ++i) cv[i] = v[i] ^ v[i + 8];
  }
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t w = 0; w < 8; ++w) out[i][w] = cv[w][i];
}

/// As by_chunks::subtree, at most 64 chunks.
template <class Lanes>
[[gnu::always_inline]] inline void hash_subtree(words& out, const std::byte* p, std::size_t count,
                                                std::uint64_t first) noexcept {
  constexpr std::size_t n = sizeof(Lanes) / 4;
  words cvs[64];
  std::size_t i = 0;
  for (; i + n <= count; i += n)
    hash_lanes<Lanes>(cvs + i, p + i * chunk_bytes, chunk_bytes, chunk_bytes / block_bytes, first + i, true, 0,
                      chunk_start, chunk_end);
  // g++ 12 sees that this is short; of `i < count` it warns at -O3
  for (std::size_t rest = count % n; rest > 0; --rest, ++i)
    cvs[i] = by_chunks::subtree(p + i * chunk_bytes, 1, first + i);
  // The values of the nodes below lie as the blocks of the node above.
  for (std::size_t left = count; left > 1; left /= 2) {
    std::size_t k = 0;
    for (; k + n <= left / 2; k += n)
      hash_lanes<Lanes>(cvs + k, reinterpret_cast<const std::byte*>(cvs + 2 * k), block_bytes, 1, 0, false, parent, 0,
                        0);
    for (; k < left / 2; ++k) cvs[k] = join(cvs[2 * k], cvs[2 * k + 1]);
  }
  out = cvs[0];
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] inline void subtree_8(words& out, const std::byte* p, std::size_t n,
                                              std::uint64_t first) noexcept {
  hash_subtree<lanes_8>(out, p, n, first);
}
[[gnu::target("avx512f")]] inline void subtree_16(words& out, const std::byte* p, std::size_t n,
                                                  std::uint64_t first) noexcept {
  hash_subtree<lanes_16>(out, p, n, first);
}
#endif
inline void subtree_4(words& out, const std::byte* p, std::size_t n, std::uint64_t first) noexcept {
  hash_subtree<lanes_4>(out, p, n, first);
}

/// Several chunks at a time, in the fastest way that there is here.
struct by_lanes {
  using rounds = unrolled;
  static constexpr std::size_t most = 64;
  static words subtree(const std::byte* p, std::size_t n, std::uint64_t first) noexcept {
    words out;
#if defined(__x86_64__)
    if (n >= 16 && __builtin_cpu_supports("avx512f")) subtree_16(out, p, n, first);
    else if (n >= 8 && __builtin_cpu_supports("avx2")) subtree_8(out, p, n, first);
    else
#endif
      subtree_4(out, p, n, first);
    return out;
  }
};
#else
using by_lanes = by_chunks;
#endif

}  // namespace detail::blake3

/// BLAKE3 with the widest vectors that the processor has. Speeds are in the page of proofs.
using blake3_lanes = basic_blake3<detail::blake3::by_lanes>;

}  // namespace tensorpull
