// A page of a schema, as an owner answers with it.
#pragma once

#include <tensorpull/framing/frame.hpp>
#include <tensorpull/image/schema.hpp>

#include <cstddef>
#include <cstdint>

namespace tensorpull::detail {

/// As many rows from `first` on as fit a frame of `frame_bytes`; they borrow the schema. An index past the end gives an
/// empty page.
inline element_list<schema_row> schema_rows(const image_schema& schema, std::uint64_t first,
                                            std::size_t frame_bytes) noexcept {
  std::size_t count = 0, used = 160;  // segment table, root, page and list pointers
  for (std::uint64_t i = first; i < schema.tensor_count; ++i, ++count) {
    const tensor_entry& t = schema.tensors[i];
    used += 24 + (t.name.size() / 8 + 1) * 8 + 16 + std::size_t{t.rank} * 8;
    if (used > frame_bytes) break;
  }
  if (count == 0) return {};
  const auto row = [](const void* tensors, std::size_t, std::size_t i) noexcept -> schema_row {
    const tensor_entry& t = static_cast<const tensor_entry*>(tensors)[i];
    return {t.name, to_string(t.type), t.extents()};
  };
  return {&schema.tensors[first], 0, count, row};
}

}  // namespace tensorpull::detail
