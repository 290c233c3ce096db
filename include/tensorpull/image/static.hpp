// An image whose tensors are known at compile time: names, order, positions, header length and fingerprint become
// constants.
//
// The work is split over several constants of bounded size, because clang allows 2^20 steps for each and no flag may be
// needed: a thousand tensors cost 0.4 s in g++ 12 and 0.5 s in clang 14; 4,000 with names of 50 characters still
// compile in both. Header text is never a constant: a megabyte of it would cost more than all the rest.
#pragma once

#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/image/detail/static_names.hpp>
#include <tensorpull/image/header.hpp>
#include <tensorpull/image/schema.hpp>

#include <cstddef>
#include <cstdint>

namespace tensorpull::detail {

inline constexpr std::size_t static_block = 256;

/// The tensors [First, First + Count) of a list of names, in order: a merge sort, each half a constant of its own while
/// it is large.
template <const auto& Names, const auto& Keys, bool ByType, std::size_t First, std::size_t Count>
constexpr auto sort_names() noexcept;

template <const auto& Names, const auto& Keys, bool ByType, std::size_t First, std::size_t Count>
inline constexpr auto sorted_names = sort_names<Names, Keys, ByType, First, Count>();

template <std::size_t N>
struct index_list {
  std::uint32_t at[N == 0 ? 1 : N]{};
};

template <const auto& Keys, bool ByType>
constexpr void merge_names(const std::uint32_t* a, const std::uint32_t* a_end, const std::uint32_t* b,
                           const std::uint32_t* b_end, std::uint32_t* out) noexcept {
  while (a != a_end && b != b_end) *out++ = Keys.before(*b, *a, ByType) ? *b++ : *a++;
  while (a != a_end) *out++ = *a++;
  while (b != b_end) *out++ = *b++;
}

template <const auto& Names, const auto& Keys, bool ByType, std::size_t First, std::size_t Count>
constexpr auto sort_names() noexcept {
  index_list<Count> sorted;
  if constexpr (Count > static_block) {
    constexpr std::size_t half = Count / 2;
    const auto& left = sorted_names<Names, Keys, ByType, First, half>;
    const auto& right = sorted_names<Names, Keys, ByType, First + half, Count - half>;
    merge_names<Keys, ByType>(left.at, left.at + half, right.at, right.at + (Count - half), sorted.at);
  } else {
    // By dtype at first, in the order of the model: then the names of layers are in long ascending runs (l.0 to l.9,
    // l.10 to l.99), and a few merges of whole runs replace log2(Count) passes.
    index_list<Count> other;
    std::uint32_t places[dtype_count + 1]{};
    for (std::size_t i = First; ByType && i < First + Count; ++i)
      ++places[dtype_count - 1 - static_cast<std::size_t>(Keys.keys[i].type)];
    for (std::uint32_t k = 0, next = 0; ByType && k < dtype_count; ++k) {
      const std::uint32_t here = places[k];
      places[k] = next;
      next += here;
    }
    for (std::size_t i = First; i < First + Count; ++i)
      sorted.at[ByType ? places[dtype_count - 1 - static_cast<std::size_t>(Keys.keys[i].type)]++ : i - First] =
          static_cast<std::uint32_t>(i);

    std::size_t starts[Count + 2]{}, runs = 0;
    for (std::size_t i = 0; i < Count; ++i)
      if (i == 0 || !Keys.before(sorted.at[i - 1], sorted.at[i], ByType)) starts[runs++] = i;
    for (; runs > 1; runs = (runs + 1) / 2) {
      starts[runs] = starts[runs + 1] = Count;
      for (std::size_t r = 0; r < runs; r += 2) {
        const std::size_t begin = starts[r], middle = starts[r + 1], end = r + 1 < runs ? starts[r + 2] : middle;
        merge_names<Keys, ByType>(sorted.at + begin, sorted.at + middle, sorted.at + middle, sorted.at + end,
                                  other.at + begin);
        starts[r / 2] = begin;
      }
      sorted = other;
    }
  }
  return sorted;
}

// Named, so that a constant of such a type is one object in the whole program: with an unnamed type g++ makes it local
// to each file, and under -fsanitize=address a model that two files use does not link.
template <std::size_t N>
struct entry_list {
  tensor_entry at[N == 0 ? 1 : N]{};
};
struct text_block {
  std::uint32_t at[static_block]{};
  std::uint64_t bytes = 0;
};
/// Bytes in little-endian words.
template <std::size_t Bytes>
struct packed_words {
  std::uint64_t words[Bytes / 8 + 1]{};
  std::size_t used = 0;  // bytes

  /// Appends a number of n bytes, 1 to 8; those above are zero.
  constexpr void append(std::uint64_t value, std::size_t n) noexcept {
    const std::size_t word = used / 8, shift = used % 8 * 8;
    words[word] |= value << shift;
    if (shift + 8 * n > 64) words[word + 1] = value >> (64 - shift);
    used += n;
  }
};

template <std::size_t N>
struct metadata_list {
  static constexpr std::size_t count = N;
  metadata_entry at[N == 0 ? 1 : N]{};
};
inline constexpr metadata_list<0> no_metadata{};

/// Everything about the image of the tensors in Names: a constant static_names in the order of the model's members.
/// Metadata: by key.
template <const auto& Names, const auto& Metadata = no_metadata>
struct static_image {
  static constexpr std::size_t count = Names.count;
  static constexpr auto keys = make_sort_keys<Names>();
  static constexpr const auto& order = sorted_names<Names, keys, true, 0, count>;

  /// rank.at[k]: the position in the image of the model's k-th tensor.
  static constexpr auto rank = [] {
    index_list<count> inverse;
    for (std::size_t i = 0; i < count; ++i) inverse.at[order.at[i]] = static_cast<std::uint32_t>(i);
    return inverse;
  }();

  /// The entries without the positions of their text, which depend on the rest of them.
  static constexpr auto placed = [] {
    entry_list<count> list;
    std::uint64_t end = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const static_leaf& leaf = Names.leaves[order.at[i]];
      const std::uint64_t begin = end;
      end += leaf.bytes;
      list.at[i] = {{Names.characters + leaf.name_begin, std::size_t{leaf.name_length}},
                    leaf.type,
                    false,
                    leaf.rank,
                    0,
                    0,
                    leaf.shape,
                    nullptr,
                    begin,
                    end};
    }
    return list;
  }();

  /// The bytes that hash_entry hashes, packed: the fingerprint is the hash of these.
  static constexpr std::size_t hashed_bytes = [] {
    std::size_t n = 0;
    for (std::size_t i = 0; i < count; ++i)
      n += 7 + Names.leaves[i].name_length + std::size_t{8} * Names.leaves[i].rank;
    return n;
  }();
  static constexpr auto hashed = [] {
    packed_words<hashed_bytes> packed;
    for (std::size_t i = 0; i < count; ++i) {
      const auto& key = keys.keys[order.at[i]];
      const static_leaf& leaf = Names.leaves[order.at[i]];
      packed.append(key.length, 4);
      for (std::uint32_t w = 0; w < key.words; ++w) {
        const std::uint32_t left = key.length - 8 * w;
        packed.append(xxh3::swap64(keys.words[key.first + w]), left < 8 ? left : 8);
      }
      packed.append(static_cast<std::uint64_t>(leaf.type) | std::uint64_t{leaf.rank} << 8, 3);
      for (std::size_t d = 0; d < leaf.rank; ++d) packed.append(leaf.shape[d], 8);
    }
    return packed;
  }();

  /// Header text of the first tensors, block by block: where that of each tensor of the last block begins, and its
  /// length without commas. A name without a character that JSON escapes is as long as it is.
  template <std::size_t Blocks>
  static constexpr text_block measure_text() noexcept {
    text_block block;
    if constexpr (Blocks > 0) {
      block.bytes = text<Blocks - 1>.bytes;
      const std::size_t first = (Blocks - 1) * static_block,
                        last = Blocks * static_block < count ? Blocks * static_block : count;
      for (std::size_t i = first; i < last; ++i) {
        block.at[i - first] = static_cast<std::uint32_t>(first_text_at({Metadata.at, Metadata.count}) + block.bytes +
                                                         i);
        tensor_entry entry = placed.at[i];
        if (!keys.needs_escape(order.at[i])) {
          block.bytes += entry.name.size();
          entry.name = {};
        }
        block.bytes += entry_text_length(entry);
      }
    }
    return block;
  }
  template <std::size_t Blocks>
  static constexpr text_block text = measure_text<Blocks>();
  static constexpr std::size_t blocks = (count + static_block - 1) / static_block;

  template <std::size_t Blocks>
  static constexpr void place_text(entry_list<count>& list) noexcept {
    if constexpr (Blocks > 0) {
      place_text<Blocks - 1>(list);
      const std::size_t first = (Blocks - 1) * static_block,
                        last = Blocks * static_block < count ? Blocks * static_block : count;
      for (std::size_t i = first; i < last; ++i) list.at[i].text_at = text<Blocks>.at[i - first] & text_at_mask;
    }
  }
  static constexpr auto entries = [] {
    entry_list<count> list = placed;
    place_text<blocks>(list);
    return list;
  }();

  static constexpr image_schema schema = [] {
    constexpr std::size_t pairs = Metadata.count;
    const std::uint64_t header = header_bytes_of(count + (pairs != 0 ? 1 : 0),
                                                 text<blocks>.bytes + metadata_text_length({Metadata.at, pairs}));
    return image_schema{entries.at,
                        count,
                        pairs != 0 ? Metadata.at : nullptr,
                        pairs,
                        header,
                        header + (count == 0 ? 0 : entries.at[count == 0 ? 0 : count - 1].end),
                        xxh3::hash_of_words(hashed.words, hashed_bytes),
                        true};
  }();
};

/// Whether two tensors have the same name, whatever their dtypes.
template <const auto& Names>
constexpr bool has_duplicate_names() noexcept {
  const auto& keys = static_image<Names>::keys;
  const auto& by_name = sorted_names<Names, static_image<Names>::keys, false, 0, Names.count>;
  for (std::size_t i = 1; i < Names.count; ++i)
    if (!keys.before(by_name.at[i - 1], by_name.at[i], false)) return true;
  return false;
}

}  // namespace tensorpull::detail
