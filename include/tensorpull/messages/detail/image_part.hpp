// The small tensors of a set, or the large ones, as an image of their own: what travels inline, and what is published
// and pulled. Both ends make the same split from the same limit, so only the limit travels.
#pragma once

#include <tensorpull/image/arrange.hpp>
#include <tensorpull/image/view.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace tensorpull::detail {

/// Which tensors of a set. small: of at most `limit` bytes; large: the others.
enum class part_of_set : std::uint8_t {
  small,
  large,
};

constexpr bool belongs(const tensor_entry& t, std::uint64_t limit, part_of_set which) noexcept {
  return (t.size_bytes() <= limit) == (which == part_of_set::small);
}

struct part_size {
  std::size_t tensors = 0;
  std::uint64_t data_bytes = 0;
  std::uint64_t image_bytes = 0;  ///< 0 if there are no tensors: then there is no image either
};

/// How much a part would be, without making it. The sums cannot wrap: they are below the set's own.
constexpr part_size measure_part(const image_schema& whole, std::uint64_t limit, part_of_set which) noexcept {
  part_size n;
  std::uint64_t text = 0;
  for (const tensor_entry& t : whole.entries()) {
    if (!belongs(t, limit, which)) continue;
    tensor_entry placed = t;
    placed.begin = n.data_bytes;
    placed.end = n.data_bytes += t.size_bytes();
    text += entry_text_length(placed);
    ++n.tensors;
  }
  if (n.tensors != 0) n.image_bytes = header_bytes_of(n.tensors, text) + n.data_bytes;
  return n;
}

/// A part with the positions of its tensors in memory. Borrows the set's schema. A part that is the whole set, without
/// metadata, is that schema itself; any other has a table of 64 bytes a tensor on the heap. Movable; views stay valid.
class image_part {
 public:
  /// out_of_memory is the only error: a part is never longer than the set.
  static result<image_part> make(const image_schema& whole, const std::uintptr_t* where, std::uint64_t limit,
                                 part_of_set which) noexcept {
    const part_size size = measure_part(whole, limit, which);
    image_part part;
    if (size.tensors == whole.tensor_count && whole.metadata_count == 0) {
      part.schema_ = &whole;
      part.where_ = where;
      return part;
    }
    if (size.tensors == 0) return part;
    part.table_.reset(new (std::nothrow) table);
    if (part.table_ == nullptr) return failure(errc::out_of_memory);
    table& made = *part.table_;
    made.entries.reset(new (std::nothrow) tensor_entry[size.tensors]);
    made.where.reset(new (std::nothrow) std::uintptr_t[size.tensors]);
    if (made.entries == nullptr || made.where == nullptr) return failure(errc::out_of_memory);
    std::size_t n = 0;
    for (std::size_t i = 0; i < whole.tensor_count; ++i) {
      if (!belongs(whole.tensors[i], limit, which)) continue;
      made.entries[n] = whole.tensors[i];
      made.where[n++] = where[i];
    }
    // An entry of the set has its position in the set's image, and the part is another image.
    const auto placed = place_entries({made.entries.get(), n}, {});
    if (!placed) return failure(placed.error());
    made.schema = *placed;
    made.schema.of_members = whole.of_members;
    part.schema_ = &made.schema;
    part.where_ = made.where.get();
    return part;
  }

  /// No tensor belongs to it.
  bool empty() const noexcept { return schema_ == nullptr || schema_->tensor_count == 0; }
  const image_schema& schema() const noexcept { return *schema_; }
  /// Over the memory of the set's own view.
  source_view source(const source_view& whole) const noexcept { return {schema_, whole.base, where_, whole.reader}; }
  destination_view destination(std::byte* base) const noexcept { return {schema_, base, where_}; }

 private:
  struct table {
    image_schema schema;
    std::unique_ptr<tensor_entry[]> entries;
    std::unique_ptr<std::uintptr_t[]> where;
  };
  const image_schema* schema_ = nullptr;
  const std::uintptr_t* where_ = nullptr;
  std::unique_ptr<table> table_;
};

}  // namespace tensorpull::detail
