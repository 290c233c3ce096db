// A block of which few elements have changed: how many unchanged ones lie before each, and its difference, both in
// Golomb-Rice codes. If 1 % of BF16 weights have changed by one in the last bit, a changed one takes 9.7 bits.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/error.hpp>
#include <tensorpull/satellites/differences/detail/ordered_bits.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull::detail {

/// A number is its quotient by 2^k, as that many zeros and a one, and then its low k bits. A quotient of `rice_escape`
/// or more is written as `rice_escape`; all bits of the number follow instead.
inline constexpr unsigned rice_escape = 20;

/// Appends bits; the first is the lowest of the first byte.
class bit_writer {
 public:
  explicit bit_writer(std::span<std::byte> out) noexcept : out_(out) {}

  void put_code(std::uint64_t number, unsigned k, unsigned all) noexcept {
    const std::uint64_t quotient = number >> k;
    if (quotient >= rice_escape) {
      put(std::uint64_t{1} << rice_escape, rice_escape + 1);
      put_long(number, all);
    } else if (k <= 32) {
      const std::uint64_t low = number & ((std::uint64_t{1} << k) - 1);
      put((low << 1U | 1) << quotient, static_cast<unsigned>(quotient) + 1 + k);
    } else {
      put(std::uint64_t{1} << quotient, static_cast<unsigned>(quotient) + 1);
      put_long(number & ((std::uint64_t{1} << k) - 1), k);
    }
  }
  /// Fills the last byte with zeros. All bytes that were written; 0: they do not fit.
  std::size_t end() noexcept {
    if (count_ > 0) put(0, 8 - count_);
    return fits_ ? at_ : 0;
  }

 private:
  /// At most 56 bits; those above the lowest `n` are 0.
  void put(std::uint64_t bits, unsigned n) noexcept {
    held_ |= bits << count_;
    count_ += n;
    const unsigned full = count_ / 8;
    fits_ = fits_ && out_.size() - at_ >= full;
    if (!fits_) return;
    if (out_.size() - at_ >= 8) {
      store_le64(&out_[at_], held_);
    } else {
      for (unsigned i = 0; i < full; ++i) out_[at_ + i] = static_cast<std::byte>(held_ >> (8 * i) & 0xff);
    }
    at_ += full;
    held_ = full == 8 ? 0 : held_ >> (8 * full);
    count_ %= 8;
  }
  void put_long(std::uint64_t bits, unsigned n) noexcept {
    if (n > 32) {
      put(bits & 0xffffffff, 32);
      bits >>= 32U, n -= 32;
    }
    put(bits, n);
  }

  std::span<std::byte> out_;
  std::size_t at_ = 0;
  std::uint64_t held_ = 0;
  unsigned count_ = 0;  // of bits in held_: below 8 between calls
  bool fits_ = true;
};

/// Reads what anybody may have written with a bit_writer. Past the end there are zeros, and ended() is false.
class bit_reader {
 public:
  explicit bit_reader(std::span<const std::byte> in) noexcept : in_(in) {}

  /// False: there is no number below 2^64.
  bool code(std::uint64_t& number, unsigned k, unsigned all) noexcept {
    fill();
    const auto zeros = static_cast<unsigned>(std::countr_zero(held_));
    if (zeros > rice_escape) return false;
    drop(zeros + 1);
    if (zeros == rice_escape) {
      number = long_bits(all);
      return true;
    }
    number = static_cast<std::uint64_t>(zeros) << k;
    if (number >> k != zeros) return false;
    number |= k <= 32 ? bits(k) : long_bits(k);
    return true;
  }
  /// Whether all was read but for zeros that fill the last byte.
  bool ended() const noexcept {
    const std::size_t read = 8 * at_ - count_;
    return read <= 8 * in_.size() && 8 * in_.size() - read < 8 && held_ == 0;
  }

 private:
  /// At most 32 bits; with 21 others no more than fill() gives.
  std::uint64_t bits(unsigned n) noexcept {
    const std::uint64_t made = held_ & ((std::uint64_t{1} << n) - 1);
    drop(n);
    return made;
  }
  std::uint64_t long_bits(unsigned n) noexcept {
    fill();
    const std::uint64_t low = bits(std::min(n, 32U));
    if (n <= 32) return low;
    fill();
    return bits(n - 32) << 32U | low;
  }
  /// So that at least 56 bits are held.
  void fill() noexcept {
    if (at_ + 8 <= in_.size()) {
      held_ |= load_le64(&in_[at_]) << count_;
      at_ += (63 - count_) / 8;
      count_ |= 56U;
      return;
    }
    for (; count_ < 56; count_ += 8, ++at_)
      if (at_ < in_.size()) held_ |= static_cast<std::uint64_t>(in_[at_]) << count_;
  }
  void drop(unsigned n) noexcept {
    held_ >>= n;
    count_ -= n;
  }

  std::span<const std::byte> in_;
  std::size_t at_ = 0;  // may be past the end
  std::uint64_t held_ = 0;  // the bits above count_ are those of bytes that are read again, or zeros
  unsigned count_ = 0;
};

/// The k that takes the fewest bits for numbers below 2^all, by how many there are of each length in bits.
class rice_parameter {
 public:
  void count(std::uint64_t number) noexcept { ++of_[std::bit_width(number)]; }
  unsigned best(unsigned all) const noexcept {
    unsigned best = 0;
    std::uint64_t least = ~std::uint64_t{0};
    for (unsigned k = 0; k < all; ++k) {
      std::uint64_t bits = 0;
      for (unsigned length = 0; length <= all; ++length) {
        const unsigned over = length > k ? length - k : 0;
        const bool whole = over > 5;  // some of those with 5 bits more are, too
        bits += of_[length] * (whole ? rice_escape + 1 + all : mean_quotient[over] + 1 + k);
      }
      if (bits < least) least = bits, best = k;
    }
    return best;
  }

 private:
  static constexpr unsigned mean_quotient[]{0, 1, 3, 6, 12, 24};  // of numbers with so many bits more than k, or more
  std::uint32_t of_[65]{};
};

/// The fewest elements of which one may have changed.
inline constexpr std::size_t sparse_share = 8;
/// In front of the codes: k of the distances, k of the differences, and the number of changed elements in 2 bytes.
inline constexpr std::size_t sparse_prologue = 4;

/// Calls f(index) for each element of which a bit differs, in order, until f is false. Whether it was not.
template <class U, class F>
bool for_each_changed(const std::byte* from, const std::byte* to, std::size_t n, F f) noexcept {
  constexpr std::size_t in_word = 8 / sizeof(U), step = 4;
  const auto differs = [&](std::size_t word) { return load_le64(from + 8 * word) ^ load_le64(to + 8 * word); };
  const std::size_t words = n / in_word;
  std::size_t i = 0;
  const auto changed_in = [&](std::size_t word) {
    for (std::uint64_t bits = differs(word); bits != 0;) {
      const auto lane = static_cast<unsigned>(std::countr_zero(bits)) / (8 * sizeof(U));
      if (!f(word * in_word + lane)) return false;
      bits &= ~(static_cast<std::uint64_t>(static_cast<U>(~U{0})) << (8 * sizeof(U) * lane));
    }
    return true;
  };
  for (; i + step <= words; i += step) {
    if ((differs(i) | differs(i + 1) | differs(i + 2) | differs(i + 3)) == 0) continue;
    for (std::size_t j = 0; j < step; ++j)
      if (!changed_in(i + j)) return false;
  }
  for (; i < words; ++i)
    if (!changed_in(i)) return false;
  for (std::size_t e = words * in_word; e < n; ++e)
    if (load_element<U>(from + e * sizeof(U)) != load_element<U>(to + e * sizeof(U)) && !f(e)) return false;
  return true;
}

/// Changed elements between two passes over them, in memory as long as all elements: where each is, its difference less
/// 1, and its old bits.
template <class U>
class sparse_list {
 public:
  sparse_list(std::byte* memory, std::size_t n) noexcept
      : at_(memory), numbers_(memory + 4 * (n / sparse_share)), old_(numbers_ + sizeof(U) * (n / sparse_share)) {}
  void set(std::size_t i, std::size_t element, U number, U old) noexcept {
    store_element(at_ + 4 * i, static_cast<std::uint32_t>(element));
    store_element(numbers_ + sizeof(U) * i, number);
    store_element(old_ + sizeof(U) * i, old);
  }
  std::size_t element(std::size_t i) const noexcept { return load_le32(at_ + 4 * i); }
  U number(std::size_t i) const noexcept { return load_element<U>(numbers_ + sizeof(U) * i); }
  U old(std::size_t i) const noexcept { return load_element<U>(old_ + sizeof(U) * i); }
  std::span<const std::byte> old_of(std::size_t count) const noexcept { return {old_, sizeof(U) * count}; }

 private:
  std::byte *at_, *numbers_, *old_;
};

/// The codes' length; 0: too many elements have changed, or none, or `out` is too short. `scratch`: as long as the
/// elements; `changed`: the old bits of those that have changed, in there.
template <class E>
std::size_t encode_sparse(const std::byte* from, const std::byte* to, std::size_t n, std::span<std::byte> out,
                          std::byte* scratch, std::span<const std::byte>& changed) noexcept {
  using U = typename E::word;
  const std::size_t most = std::min<std::size_t>(n / sparse_share, 0xffff);
  sparse_list<U> list(scratch, n);
  rice_parameter gaps, numbers;
  std::size_t count = 0, next = 0;
  const bool few = for_each_changed<U>(from, to, n, [&](std::size_t i) noexcept {
    if (count == most) return false;
    const U old = load_element<U>(from + i * sizeof(U));
    const auto number = static_cast<U>(E::difference(old, load_element<U>(to + i * sizeof(U))) - 1);
    gaps.count(i - next);
    numbers.count(number);
    list.set(count++, i, number, old);
    next = i + 1;
    return true;
  });
  if (!few || count == 0 || out.size() < sparse_prologue) return 0;
  constexpr unsigned all = 8 * sizeof(U);
  const unsigned k_gap = gaps.best(32), k_number = numbers.best(all);
  out[0] = static_cast<std::byte>(k_gap);
  out[1] = static_cast<std::byte>(k_number);
  store_element(&out[2], static_cast<std::uint16_t>(count));
  bit_writer bits(out.subspan(sparse_prologue));
  next = 0;
  for (std::size_t i = 0; i < count; ++i) {
    bits.put_code(list.element(i) - next, k_gap, 32);
    bits.put_code(list.number(i), k_number, all);
    next = list.element(i) + 1;
  }
  changed = list.old_of(count);
  const std::size_t length = bits.end();
  return length == 0 ? 0 : sparse_prologue + length;
}

/// Reads all of `in`, and then asks `same(old bits of what will change)`, before it changes an element. bad_frame:
/// these are no such codes; digest_mismatch: `same` was false.
template <class E, class Same>
errc apply_sparse(std::byte* inout, std::size_t n, std::span<const std::byte> in, std::byte* scratch,
                  Same same) noexcept {
  using U = typename E::word;
  constexpr unsigned all = 8 * sizeof(U);
  if (in.size() < sparse_prologue) return errc::bad_frame;
  const auto k_gap = static_cast<unsigned>(in[0]), k_number = static_cast<unsigned>(in[1]);
  const std::size_t count = load_le16(&in[2]);
  if (k_gap >= 32 || k_number >= all || count == 0 || count > n / sparse_share) return errc::bad_frame;
  sparse_list<U> list(scratch, n);
  bit_reader bits(in.subspan(sparse_prologue));
  std::uint64_t next = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t gap = 0, number = 0;
    if (!bits.code(gap, k_gap, 32) || !bits.code(number, k_number, all)) return errc::bad_frame;
    if (gap >= n - next || number >= static_cast<U>(~U{0})) return errc::bad_frame;
    const auto element = static_cast<std::size_t>(next + gap);
    list.set(i, element, static_cast<U>(number), load_element<U>(inout + element * sizeof(U)));
    next = element + 1;
  }
  if (!bits.ended()) return errc::bad_frame;
  if (!same(list.old_of(count))) return errc::digest_mismatch;
  for (std::size_t i = 0; i < count; ++i)
    store_element(inout + list.element(i) * sizeof(U), E::moved(list.old(i), static_cast<U>(list.number(i) + 1)));
  return {};
}

}  // namespace tensorpull::detail
