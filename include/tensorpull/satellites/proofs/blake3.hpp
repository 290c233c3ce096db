// BLAKE3 (its specification of 2020), streaming, for a whole input and for the subtrees of one. In plain C++; hosts
// take several chunks at a time (blake3_lanes.hpp), and small machines have it in 1.2 KB of code.
#pragma once

#include <tensorpull/core/digest_kind.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

namespace tensorpull {

/// A digest of BLAKE3, or the chaining value of a subtree: 32 bytes, as `b3sum` prints them.
using blake3_value = std::array<std::byte, 32>;

namespace detail::blake3 {

inline constexpr std::size_t block_bytes = 64, chunk_bytes = 1024;
inline constexpr std::uint32_t chunk_start = 1, chunk_end = 2, parent = 4, root = 8;

using words = std::array<std::uint32_t, 8>;
inline constexpr words initial{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                               0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

/// Which word of a block each round takes, in the order in which it takes them.
struct schedule_table {
  std::uint8_t at[7][16];
};
inline constexpr std::uint8_t permutation[16]{2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8};
constexpr schedule_table make_schedule() noexcept {
  schedule_table s{};
  for (std::uint8_t i = 0; i < 16; ++i) s.at[0][i] = i;
  for (std::size_t r = 1; r < 7; ++r)
    for (std::size_t i = 0; i < 16; ++i) s.at[r][i] = s.at[r - 1][permutation[i]];
  return s;
}
inline constexpr schedule_table schedule = make_schedule();

/// One round over the state `v`. Word is a number, or a vector that has one number for each of several chunks.
template <class Word>
[[gnu::always_inline]] constexpr void mix(Word& a, Word& b, Word& c, Word& d, const Word& x, const Word& y) noexcept {
  a = a + b + x;
  d ^= a;
  d = d >> 16 | d << 16;
  c = c + d;
  b ^= c;
  b = b >> 12 | b << 20;
  a = a + b + y;
  d ^= a;
  d = d >> 8 | d << 24;
  c = c + d;
  b ^= c;
  b = b >> 7 | b << 25;
}
template <class Word>
[[gnu::always_inline]] constexpr void round(Word* v, const Word* m, const std::uint8_t* s) noexcept {
  mix(v[0], v[4], v[8], v[12], m[s[0]], m[s[1]]);
  mix(v[1], v[5], v[9], v[13], m[s[2]], m[s[3]]);
  mix(v[2], v[6], v[10], v[14], m[s[4]], m[s[5]]);
  mix(v[3], v[7], v[11], v[15], m[s[6]], m[s[7]]);
  mix(v[0], v[5], v[10], v[15], m[s[8]], m[s[9]]);
  mix(v[1], v[6], v[11], v[12], m[s[10]], m[s[11]]);
  mix(v[2], v[7], v[8], v[13], m[s[12]], m[s[13]]);
  mix(v[3], v[4], v[9], v[14], m[s[14]], m[s[15]]);
}

/// The rounds of a compression, fast: each mix is code of its own.
struct unrolled {
  static constexpr void rounds(std::uint32_t* v, const std::uint32_t* m) noexcept {
    for (const auto& s : schedule.at) round(v, m, s);
  }
};
/// The same in a third of the code.
struct rolled {
  static constexpr void rounds(std::uint32_t* v, const std::uint32_t* m) noexcept {
    std::uint8_t s[16]{};
    for (std::uint8_t i = 0; i < 16; ++i) s[i] = i;
    for (unsigned r = 0;; ++r) {
      for (unsigned i = 0; i < 8; ++i) {  // columns, then diagonals
        const unsigned k = i / 4;
        mix(v[i % 4], v[4 + (i + k) % 4], v[8 + (i + 2 * k) % 4], v[12 + (i + 3 * k) % 4], m[s[2 * i]],
            m[s[2 * i + 1]]);
      }
      if (r == 6) return;
      for (std::uint8_t& at : s) at = permutation[at];
    }
  }
};

using block_bytes_type = std::array<std::byte, block_bytes>;
using block_words = std::array<std::uint32_t, block_bytes / 4>;

/// Words as bytes, and bytes as words: least significant first.
template <class To, class From>
constexpr To reordered(const From& from) noexcept {
  static_assert(sizeof(To) == sizeof(From));
  if constexpr (std::endian::native == std::endian::little) return std::bit_cast<To>(from);
  else {
    To to{};
    for (std::size_t i = 0; i < sizeof(To); ++i)
      if constexpr (std::is_same_v<typename To::value_type, std::byte>)
        to[i] = static_cast<std::byte>(from[i / 4] >> 8 * (i % 4) & 0xff);
      else to[i / 4] |= std::to_integer<std::uint32_t>(from[i]) << 8 * (i % 4);
    return to;
  }
}
constexpr blake3_value bytes_of(const words& cv) noexcept { return reordered<blake3_value>(cv); }
constexpr words words_of(const blake3_value& bytes) noexcept { return reordered<words>(bytes); }

/// The chaining value after one block of `length` bytes, which has zeros behind them.
template <class Rounds>
constexpr words compress(const words& cv, const block_words& m, std::uint64_t counter, std::size_t length,
                         std::uint32_t flags) noexcept {
  std::uint32_t v[16]{
      cv[0],
      cv[1],
      cv[2],
      cv[3],
      cv[4],
      cv[5],
      cv[6],
      cv[7],
      initial[0],
      initial[1],
      initial[2],
      initial[3],
      static_cast<std::uint32_t>(counter),
      static_cast<std::uint32_t>(counter >> 32),
      static_cast<std::uint32_t>(length),
      flags,
  };
  Rounds::rounds(v, m.data());
  words out{};
  for (std::size_t i = 0; i < 8; ++i) out[i] = v[i] ^ v[i + 8];
  return out;
}
/// That of the two halves below a node. `flags`: root, if nothing is above it.
template <class Rounds = unrolled>
constexpr words join(const words& left, const words& right, std::uint32_t flags = 0) noexcept {
  block_words m{};
  std::copy(left.begin(), left.end(), m.begin());
  std::copy(right.begin(), right.end(), m.begin() + 8);
  return compress<Rounds>(initial, m, 0, block_bytes, parent | flags);
}

/// The values of the whole subtrees to the left of where an input is now, the largest first: 32 bytes for each of
/// Depth. A node of any size may be pushed, if it is one of the input's tree.
template <std::size_t Depth, class Rounds = unrolled>
class left_nodes {
 public:
  /// The `number`th node of its size, counted from 1. Never the last of all: the node above it is another if more
  /// follows.
  template <class Count>
  constexpr void push(words cv, Count number) noexcept {
    for (; number % 2 == 0; number /= 2) cv = join<Rounds>(at_[--count_], cv);
    at_[count_++] = cv;
  }
  constexpr bool empty() const noexcept { return count_ == 0; }
  constexpr void clear() noexcept { count_ = 0; }
  /// The value over all that were pushed and `last` behind them. `flags`: root, if nothing is above it.
  constexpr words over(words last, std::uint32_t flags) const noexcept {
    for (std::size_t i = count_; i-- > 0;) last = join<Rounds>(at_[i], last, i == 0 ? flags : 0);
    return last;
  }

 private:
  std::array<words, std::max<std::size_t>(Depth, 1)> at_{};
  std::size_t count_ = 0;
};

/// The value over all of `values`, which are those of groups of one size: the root's, if nothing is above them.
template <class Rounds = unrolled, std::size_t Depth = 54>
constexpr blake3_value root_over(std::span<const blake3_value> values) noexcept {
  if (values.size() == 1) return values[0];
  left_nodes<Depth, Rounds> left;
  for (std::size_t i = 0; i + 1 < values.size(); ++i) left.push(words_of(values[i]), i + 1);
  return bytes_of(left.over(words_of(values.back()), root));
}

/// One block at a time, on small machines.
struct by_blocks {
  using rounds = rolled;
  static constexpr std::size_t most = 0;
};

/// One chunk at a time.
struct by_chunks {
  using rounds = unrolled;
  static constexpr std::size_t most = 1;  ///< chunks that subtree() takes
  /// The chaining value of `count` whole chunks, a power of two that divides the number of the first one.
  static constexpr words subtree(const std::byte* p, std::size_t, std::uint64_t first) noexcept {
    words cv = initial;
    for (std::size_t at = 0; at < chunk_bytes; at += block_bytes) {
      block_bytes_type block{};
      std::copy(p + at, p + at + block_bytes, block.begin());
      const auto m = reordered<block_words>(block);
      cv = compress<unrolled>(cv, m, first, block_bytes,
                              (at == 0 ? chunk_start : 0) | (at + block_bytes == chunk_bytes ? chunk_end : 0));
    }
    return cv;
  }
};

}  // namespace detail::blake3

/// A model of `hash` over an input, or over the subtree of one that begins with chunk `first` (of 1,024 bytes). Up to
/// 2^(Depth + 10) bytes. `Chunks` hashes whole chunks. 32 bytes for each of Depth, and 208; no heap.
template <class Chunks, std::size_t Depth = 54>
class basic_blake3 {
 public:
  static constexpr digest_kind kind = digest_kind::none;  ///< no digest of the wire

  constexpr basic_blake3() noexcept = default;
  /// Of a subtree, whose size is a power of two that divides its position, unless the input ends in it.
  explicit constexpr basic_blake3(std::uint64_t first) noexcept : first_(static_cast<count>(first)) {}

  /// Begins anew, with chunk `first`.
  constexpr void reset(std::uint64_t first = 0) noexcept {
    cv_ = detail::blake3::initial;
    block_ = {};
    held_ = blocks_ = 0;
    first_ = static_cast<count>(first);
    chunks_ = 0;
    last_ = {};
    left_.clear();
  }
  /// Takes the next bytes.
  constexpr void update(std::span<const std::byte> bytes) noexcept {
    using namespace detail::blake3;
    while (!bytes.empty()) {
      // more follows: only now is it known that what is here is not the end
      if (held_ == block_bytes) end_block();
      if constexpr (has_subtrees) {
        if (last_.chunks != 0) push(last_.cv, std::exchange(last_.chunks, 0));
        if (held_ + blocks_ == 0 && bytes.size() > chunk_bytes) {
          const std::uint64_t at = first_ + chunks_;
          // what may be the root is hashed as one node only if something follows
          const std::size_t whole = (bytes.size() - (at == 0 ? 1 : 0)) / chunk_bytes;
          std::size_t n = std::min<std::size_t>(Chunks::most, std::bit_floor(whole));
          if (at != 0) n = std::min<std::uint64_t>(n, std::uint64_t{1} << std::countr_zero(at));
          last_ = {Chunks::subtree(bytes.data(), n, at), n};
          bytes = bytes.subspan(n * chunk_bytes);
          continue;
        }
      }
      const std::size_t n = std::min(bytes.size(), block_bytes - held_);
      if (std::is_constant_evaluated()) std::copy(bytes.data(), bytes.data() + n, block_.data() + held_);
      else std::memcpy(block_.data() + held_, bytes.data(), n);
      held_ += n;
      bytes = bytes.subspan(n);
    }
  }
  /// The digest, if this is the whole input.
  constexpr blake3_value value() const noexcept { return end(detail::blake3::root); }
  /// The chaining value of the subtree, if it is not the whole.
  constexpr blake3_value chaining_value() const noexcept { return end(0); }
  /// The first eight bytes of the digest, most significant first.
  constexpr std::uint64_t digest() const noexcept {
    const blake3_value all = value();
    std::uint64_t out = 0;
    for (std::size_t i = 0; i < 8; ++i) out = out << 8 | std::to_integer<std::uint64_t>(all[i]);
    return out;
  }

 private:
  using words = detail::blake3::words;
  using rounds = typename Chunks::rounds;
  static constexpr bool has_subtrees = Chunks::most > 0;
  struct subtree {  // which may be the last node of all
    words cv{};
    std::size_t chunks = 0;  // 0: there is none
  };
  struct none {};
  using count = std::conditional_t<has_subtrees, std::uint64_t, std::uint32_t>;  // of chunks

  constexpr words block_value(std::uint32_t flags) const noexcept {
    const auto m = detail::blake3::reordered<detail::blake3::block_words>(block_);
    return detail::blake3::compress<rounds>(cv_, m, first_ + chunks_, held_,
                                            flags | (blocks_ == 0 ? detail::blake3::chunk_start : 0));
  }
  /// The block is full, and more follows.
  constexpr void end_block() noexcept {
    using namespace detail::blake3;
    const bool last = blocks_ + 1 == chunk_bytes / block_bytes;
    cv_ = block_value(last ? chunk_end : 0);
    block_ = {};
    held_ = 0;
    if (!last) {
      ++blocks_;
      return;
    }
    blocks_ = 0;
    push(cv_, 1);
    cv_ = initial;
  }
  constexpr void push(const words& cv, std::size_t chunks) noexcept {
    chunks_ += static_cast<count>(chunks);
    left_.push(cv, chunks_ / static_cast<count>(chunks));
  }
  constexpr blake3_value end(std::uint32_t flags) const noexcept {
    if constexpr (has_subtrees)
      if (last_.chunks != 0) return detail::blake3::bytes_of(left_.over(last_.cv, flags));
    const words last = block_value(detail::blake3::chunk_end | (left_.empty() ? flags : 0));
    return detail::blake3::bytes_of(left_.over(last, flags));
  }

  words cv_ = detail::blake3::initial;
  detail::blake3::block_bytes_type block_{};  // zeros behind its bytes
  std::size_t held_ = 0, blocks_ = 0;  // bytes of this block, blocks of this chunk before it
  count first_ = 0, chunks_ = 0;
  [[no_unique_address]] std::conditional_t<has_subtrees, subtree, none> last_{};
  detail::blake3::left_nodes<Depth, rounds> left_{};
};

/// BLAKE3 in plain C++, for any machine and in constant evaluation.
using blake3_hash = basic_blake3<detail::blake3::by_chunks>;
/// The same in half of the code and at a fraction of the speed, of up to 2^(Depth + 10) bytes.
template <std::size_t Depth>
using lean_blake3 = basic_blake3<detail::blake3::by_blocks, Depth>;

}  // namespace tensorpull
