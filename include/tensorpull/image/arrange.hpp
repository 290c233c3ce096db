// Makes a schema from tensors in any order: checks, sorts, positions, measures. In place, in the caller's arrays: no
// heap, bounded stack.
#pragma once

#include <tensorpull/image/detail/sort.hpp>
#include <tensorpull/image/header.hpp>
#include <tensorpull/image/schema.hpp>
#include <tensorpull/image/utf8.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace tensorpull {

namespace detail {

/// Whether the numbers of this dtype can have that many bytes.
constexpr bool swappable(const tensor_entry& entry) noexcept {
  return !entry.indirect && entry.swap_bytes == number_bytes(entry.type);
}

/// The checks of one tensor alone; the error names it.
constexpr result<std::uint64_t> check_entry(const tensor_entry& entry, std::size_t index) noexcept {
  if (entry.name == "__metadata__") return failure(errc::reserved_name, index, entry.name);
  if (!is_utf8(entry.name)) return failure(errc::invalid_argument, index);
  if (entry.rank != 0 && entry.shape == nullptr) return failure(errc::invalid_argument, index, entry.name);
  const auto size = size_bytes(entry.type, entry.extents());
  if (!size) return failure(size.error().code, index, entry.name);
  if (entry.swap_bytes != 0 && !swappable(entry)) return failure(errc::invalid_argument, index, entry.name);
  if (entry.strides_bytes != nullptr && (entry.rank > max_strided_rank || bits(entry.type) % 8 != 0))
    return failure(errc::unsupported_layout, index, entry.name);
  return *size;
}

/// Equal names of different dtypes are apart in image order, which is at most 22 runs of ascending names, one for each
/// dtype: so the runs are merged without being copied. Returns an entry whose name occurs twice, or null. O(n times the
/// number of dtypes in use).
constexpr const tensor_entry* find_duplicate(std::span<const tensor_entry> entries) noexcept {
  struct run {
    std::size_t at, end;
  };
  std::array<run, dtype_count> runs{};
  std::size_t count = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i == 0 || entries[i].type != entries[i - 1].type) runs[count++] = {i, i};
    else if (entries[i].name == entries[i - 1].name) return &entries[i];
    runs[count - 1].end = i + 1;
  }
  while (count > 1) {
    std::size_t least = 0;
    for (std::size_t k = 1; k < count; ++k) {
      const int order = entries[runs[k].at].name.compare(entries[runs[least].at].name);
      if (order == 0) return &entries[runs[k].at];
      if (order < 0) least = k;
    }
    if (++runs[least].at == runs[least].end) runs[least] = runs[--count];
  }
  return nullptr;
}

/// Checks, counts and orders the metadata.
constexpr result<void> arrange_metadata(std::span<metadata_entry> pairs) noexcept {
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (!is_utf8(pairs[i].key) || !is_utf8(pairs[i].value)) return failure(errc::invalid_argument, i);
    pairs[i].text_bytes = json_length(pairs[i].value);
  }
  sort_in_place(
      pairs.size(), [&](std::size_t a, std::size_t b) { return pairs[a].key < pairs[b].key; },
      [&](std::size_t a, std::size_t b) { std::swap(pairs[a], pairs[b]); });
  for (std::size_t i = 1; i < pairs.size(); ++i)
    if (pairs[i].key == pairs[i - 1].key) return failure(errc::duplicate_name, i, pairs[i].key);
  return {};
}

/// The schema over entries and metadata that are in order: sets the fields of an entry that hold its position, in the
/// data section and in the header. Code that changes which tensors an image has calls it. Errors: size_overflow,
/// does_not_fit.
constexpr result<image_schema> place_entries(std::span<tensor_entry> entries,
                                             std::span<const metadata_entry> metadata) noexcept {
  std::uint64_t end = 0;
  xxh3_64 hash;
  for (tensor_entry& entry : entries) {
    const auto sum = checked_add(end, *size_bytes(entry.type, entry.extents()));
    if (!sum) return failure(errc::size_overflow, 0, entry.name);
    entry.begin = end;
    entry.end = end = *sum;
    hash_entry(hash, entry);
  }
  const std::uint64_t text = first_text_at(metadata);
  std::uint64_t text_end = text;
  for (tensor_entry& entry : entries) {
    entry.text_at = static_cast<std::uint32_t>(text_end) & text_at_mask;
    text_end += entry_text_length(entry) + 1;
  }
  const std::uint64_t header = header_bytes_of(entries.size() + (metadata.empty() ? 0 : 1),
                                               metadata_text_length(metadata) + text_end - text - entries.size());
  if (header - 8 > max_header_text_bytes) return failure(errc::does_not_fit, header - 8);
  const auto total = checked_add(header, end);
  if (!total) return failure(errc::size_overflow);
  return image_schema{entries.data(), entries.size(), metadata.data(), metadata.size(), header, *total, hash.digest()};
}

}  // namespace detail

/// Sorts `entries` into image order and `where` along with them (one address each; or empty), sorts the metadata, sets
/// each entry's begin and end, and returns the schema over these arrays, which must outlive it. begin and end need not
/// be set before. Errors, with the tensor's index as given in `at` if one is to blame: invalid_argument (text that is
/// not UTF-8, a shape that is missing), reserved_name, duplicate_name, unsupported_dtype (a packed dtype that fills no
/// whole byte), unsupported_layout, size_overflow, does_not_fit (more header text than the reference library reads).
/// After an error the order is unspecified.
[[nodiscard]] constexpr result<image_schema> arrange(std::span<tensor_entry> entries,
                                                     std::span<std::uintptr_t> where = {},
                                                     std::span<metadata_entry> metadata = {}) noexcept {
  if (!where.empty() && where.size() != entries.size()) return failure(errc::invalid_argument);
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (const auto size = detail::check_entry(entries[i], i); !size) return failure(size.error());

  const auto before = [&](std::size_t a, std::size_t b) {
    return image_order(entries[a].type, entries[a].name, entries[b].type, entries[b].name);
  };
  const auto exchange = [&](std::size_t a, std::size_t b) {
    std::swap(entries[a], entries[b]);
    if (!where.empty()) std::swap(where[a], where[b]);
  };
  detail::sort_in_place(entries.size(), before, exchange);
  if (const tensor_entry* twice = detail::find_duplicate(entries)) return failure(errc::duplicate_name, 0, twice->name);
  if (const auto ordered = detail::arrange_metadata(metadata); !ordered) return failure(ordered.error());

  return detail::place_entries(entries, metadata);
}

}  // namespace tensorpull
