// The table of a safetensors file. Decides that its header is read twice: once to measure and check, once to fill
// memory of exactly that size. So nothing grows, and nothing is allocated that the file has not shown.
#pragma once

#include <tensorpull/image/detail/carver.hpp>
#include <tensorpull/image/detail/sort.hpp>
#include <tensorpull/tensors/safetensors/detail/safetensors_header.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull::detail {

/// First reading: how much there is.
struct header_measure {
  std::uint64_t tensors = 0, extents = 0, pairs = 0, characters = 0;

  result<void> tensor(const described_tensor& t) noexcept {
    ++tensors;
    extents += t.shape.size();
    characters += t.name.size();
    return {};
  }
  result<void> metadata(std::string_view key, std::string_view value) noexcept {
    ++pairs;
    characters += key.size() + value.size();
    return {};
  }
  friend bool operator==(const header_measure&, const header_measure&) = default;

  /// Bytes of the arrays below. Cannot wrap: all of it stood in a text of at most 100 MB.
  std::uint64_t bytes() const noexcept {
    return tensors * (sizeof(tensor_entry) + sizeof(std::uintptr_t)) + extents * 8 + pairs * sizeof(metadata_entry) +
           characters;
  }
};

/// Second reading: fills the arrays. io if the file has more than before: it has changed.
struct header_arrays {
  header_measure room, used{};
  tensor_entry* entries;
  std::uint64_t* extents;
  metadata_entry* pairs;
  std::uintptr_t* where;
  carver characters;

  header_arrays(std::byte* block, const header_measure& measured) noexcept : room(measured), characters(block) {
    entries = characters.take<tensor_entry>(static_cast<std::size_t>(room.tensors));
    extents = characters.take<std::uint64_t>(static_cast<std::size_t>(room.extents));
    pairs = characters.take<metadata_entry>(static_cast<std::size_t>(room.pairs));
    where = characters.take<std::uintptr_t>(static_cast<std::size_t>(room.tensors));
  }

  /// The entry's begin and end are those of the file until the schema is arranged.
  result<void> tensor(const described_tensor& t) noexcept {
    const header_measure before = used;
    if (!(used.tensor(t)) || !fits()) return failure(errc::io, 0, t.name);
    tensor_entry& entry = entries[before.tensors];
    entry.name = characters.copy(t.name);
    entry.type = t.type;
    entry.rank = static_cast<std::uint16_t>(t.shape.size());
    entry.shape = extents + before.extents;
    entry.begin = t.begin;
    entry.end = t.end;
    std::copy(t.shape.begin(), t.shape.end(), extents + before.extents);
    return {};
  }
  result<void> metadata(std::string_view key, std::string_view value) noexcept {
    const header_measure before = used;
    if (!used.metadata(key, value) || !fits()) return failure(errc::io, 0, key);
    const std::string_view kept = characters.copy(key);
    pairs[before.pairs] = {kept, characters.copy(value)};
    return {};
  }

 private:
  bool fits() const noexcept {
    return used.tensors <= room.tensors && used.extents <= room.extents && used.pairs <= room.pairs &&
           used.characters <= room.characters;
  }
};

/// Whether the tensors cover the data from its first byte to its last, each byte once: no hole, no overlap, nothing
/// behind them (as the specification has it: a file must not be two things at a time). Leaves the entries in the file's
/// order. misplaced_tensor, with the one that does not begin where the one before it ends; duplicate_name;
/// trailing_bytes; cut_file.
inline result<void> check_coverage(std::span<tensor_entry> entries, const header_bounds& bounds) noexcept {
  const auto before = [&](std::size_t a, std::size_t b) {
    return entries[a].begin != entries[b].begin ? entries[a].begin < entries[b].begin : entries[a].end < entries[b].end;
  };
  bool sorted = true;  // as most files are
  for (std::size_t i = 1; i < entries.size() && sorted; ++i) sorted = !before(i, i - 1);
  if (!sorted)
    sort_in_place(entries.size(), before, [&](std::size_t a, std::size_t b) { std::swap(entries[a], entries[b]); });
  std::uint64_t end = 0;
  for (const tensor_entry& entry : entries) {
    if (entry.begin != end) {
      const bool twice = &entry != entries.data() && (&entry)[-1].name == entry.name;
      return failure(twice ? errc::duplicate_name : errc::misplaced_tensor, bounds.data_begin + end, entry.name);
    }
    end = entry.end;
  }
  if (end < bounds.data_bytes) return failure(errc::trailing_bytes, bounds.data_begin + end);
  if (end > bounds.data_bytes) return failure(errc::cut_file, bounds.data_begin + bounds.data_bytes);
  return {};
}

}  // namespace tensorpull::detail
