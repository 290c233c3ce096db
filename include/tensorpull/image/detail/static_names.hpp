// The names, dtypes and shapes of a model's tensors as one constant, in the order of the model's members, and keys to
// sort them by. Plain arrays and 8-byte words, not strings: each step of constant evaluation costs compile time.
#pragma once

#include <tensorpull/core/digits.hpp>
#include <tensorpull/core/dtype.hpp>
#include <tensorpull/core/xxh3.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tensorpull::detail {

struct static_leaf {
  std::uint32_t name_begin = 0, name_length = 0;
  dtype type = dtype::u8;
  std::uint16_t rank = 0;
  const std::uint64_t* shape = nullptr;
  std::uint64_t bytes = 0;
};

/// How much room the names take. `longest` and `characters` do not count a part's own prefix. `listed`: some are texts
/// that a program wrote (members_of), and no identifiers.
struct static_counts {
  std::size_t tensors = 0, characters = 0, longest = 0;
  bool listed = false;
};

// Eight characters for one statement, which is what clang counts; both ends have room for the last eight.
constexpr void copy_by_eight(const char* from, char* to, std::size_t n) noexcept {
  for (const char* const end = from + n; from < end; from += 8, to += 8)
    to[0] = from[0], to[1] = from[1], to[2] = from[2], to[3] = from[3], to[4] = from[4], to[5] = from[5],
    to[6] = from[6], to[7] = from[7];
}

template <std::size_t Tensors, std::size_t Characters>
struct static_names {
  static constexpr std::size_t count = Tensors;
  static constexpr std::size_t character_count = Characters;
  char characters[Characters + 8]{};
  static_leaf leaves[Tensors == 0 ? 1 : Tensors]{};

  constexpr std::string_view name(std::size_t i) const noexcept {
    return {characters + leaves[i].name_begin, std::size_t{leaves[i].name_length}};
  }
};

/// Fills static_names from a walk through a model: components are entered and left, leaves take the name that is put
/// together by then.
template <std::size_t Tensors, std::size_t Characters, std::size_t Longest>
class name_writer {
 public:
  /// Appends one component; returns what leave wants.
  constexpr std::size_t enter(const char* text, std::size_t n) noexcept {
    const std::size_t mark = length_;
    if (length_ != 0) current_[length_++] = '.';
    for (std::size_t i = 0; i < n; ++i) current_[length_ + i] = text[i];
    length_ += n;
    return mark;
  }
  constexpr std::size_t enter(std::size_t index) noexcept {
    const decimal digits(index);
    return enter(digits.data(), digits.size());
  }
  constexpr void leave(std::size_t mark) noexcept { length_ = mark; }

  constexpr void leaf(dtype type, std::size_t rank, const std::uint64_t* shape, std::uint64_t bytes) noexcept {
    copy_by_eight(current_, names_.characters + used_, length_);
    names_.leaves[count_++] = {static_cast<std::uint32_t>(used_),
                               static_cast<std::uint32_t>(length_),
                               type,
                               static_cast<std::uint16_t>(rank),
                               shape,
                               bytes};
    used_ += length_;
  }
  constexpr const static_names<Tensors, Characters>& names() const noexcept { return names_; }

 private:
  static_names<Tensors, Characters> names_{};
  char current_[Longest + 8]{};
  std::size_t length_ = 0, used_ = 0, count_ = 0;
};

/// Names as big-endian words, so that comparing words is comparing bytes.
template <std::size_t Tensors, std::size_t Words>
struct sort_keys {
  struct key {
    std::uint32_t first = 0, words = 0, length = 0;
    dtype type = dtype::u8;
  };
  std::uint64_t words[Words == 0 ? 1 : Words]{};
  key keys[Tensors == 0 ? 1 : Tensors]{};

  constexpr bool before(std::uint32_t i, std::uint32_t j, bool by_type) const noexcept {
    const key &a = keys[i], &b = keys[j];
    if (by_type && a.type != b.type) return a.type > b.type;
    const std::uint64_t *p = words + a.first, *q = words + b.first;
    for (const std::uint64_t* end = p + (a.words < b.words ? a.words : b.words); p != end; ++p, ++q)
      if (*p != *q) return *p < *q;
    return a.length < b.length;
  }

  /// Whether the name has a control character, a quote or a backslash: eight characters at a time.
  constexpr bool needs_escape(std::uint32_t i) const noexcept {
    constexpr std::uint64_t ones = 0x0101010101010101, tops = 0x80 * ones;
    const auto has_below = [](std::uint64_t x, std::uint64_t bound) { return (x - bound * ones) & ~x & tops; };
    for (std::uint32_t w = 0; w < keys[i].words; ++w) {
      std::uint64_t x = words[keys[i].first + w];
      // The padding of the last word is no part of the name.
      if (const std::uint32_t left = keys[i].length - 8 * w; left < 8) x |= 0x2020202020202020 >> (8 * left);
      if ((has_below(x, 0x20) | has_below(x ^ 0x22 * ones, 1) | has_below(x ^ 0x5c * ones, 1)) != 0) return true;
    }
    return false;
  }
};

template <const auto& Names>
constexpr std::size_t key_words() noexcept {
  std::size_t n = 0;
  for (std::size_t i = 0; i < Names.count; ++i) n += (Names.leaves[i].name_length + 7) / 8;
  return n;
}

template <const auto& Names>
constexpr auto make_sort_keys() noexcept {
  sort_keys<Names.count, key_words<Names>()> made;
  std::uint32_t used = 0;
  for (std::size_t i = 0; i < Names.count; ++i) {
    const static_leaf& leaf = Names.leaves[i];
    const std::uint32_t first = used;
    const char* const name = Names.characters + leaf.name_begin;
    std::uint32_t k = 0;
    for (; k + 8 <= leaf.name_length; k += 8) made.words[used++] = xxh3::swap64(load_le64(name + k));
    // The bits behind the name in the last word are shifted out.
    if (const unsigned rest = leaf.name_length - k; rest != 0)
      made.words[used++] = xxh3::swap64(load_le64(name + k)) >> (64 - 8 * rest) << (64 - 8 * rest);
    made.keys[i] = {first, used - first, leaf.name_length, leaf.type};
  }
  return made;
}

}  // namespace tensorpull::detail
