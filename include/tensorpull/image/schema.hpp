// The parts of an image: the tensors in image order with their positions, the metadata, the sizes, the fingerprint.
// Data only.
//
// A schema is a constant (tensors/structs/raw.hpp), or lies in memory that dynamic_image owns, or in arrays of the
// caller's (arrange.hpp).
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/dtype.hpp>
#include <tensorpull/core/tensor_view.hpp>
#include <tensorpull/core/xxh3.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace tensorpull {

namespace detail {
/// The smaller of two numbers of which at least one fits a size_t.
constexpr std::size_t smaller(std::uint64_t a, std::uint64_t b) noexcept {
  return static_cast<std::size_t>(a < b ? a : b);
}
}  // namespace detail

/// One tensor of an image. Nothing is owned. 56 bytes on a 64-bit host; with its address and a shape of rank 4, 96.
struct tensor_entry {
  /// UTF-8; may be empty, may hold any character
  std::string_view name;
  /// The type of its elements.
  dtype type = dtype::u8;
  /// no address leads to it: a source_reader gives its bytes, a destination_writer takes them
  bool indirect = false;
  /// The number of dimensions.
  std::uint16_t rank = 0;
  /// bytes of a number (2, 4 or 8) if memory holds its numbers in the other byte order; otherwise 0
  std::uint32_t swap_bytes : 4 = 0;
  /// where its text begins in the header, behind the comma; 0: not known, and then finding a position in the header
  /// costs a pass over the names before it
  std::uint32_t text_at : 28 = 0;
  /// `rank` extents, outermost first; may be null for a scalar
  const std::uint64_t* shape = nullptr;
  /// `rank` strides in bytes of the tensor in memory, or null: C-contiguous. Not part of the image, which is always
  /// contiguous.
  const std::int64_t* strides_bytes = nullptr;
  std::uint64_t begin = 0;  ///< First byte in the data section.
  std::uint64_t end = 0;  ///< The byte behind the last one.

  /// Bytes of the tensor in the image.
  constexpr std::uint64_t size_bytes() const noexcept { return end - begin; }
  /// Bytes of a number whose bytes are in memory in the reverse of the image's order, which is little-endian; otherwise
  /// 0.
  constexpr unsigned reversed_bytes() const noexcept {
    if constexpr (little_endian_machine) return swap_bytes;
    else return indirect || swap_bytes != 0 ? 0 : number_bytes(type);
  }
  /// Whether memory holds the bytes as the image has them; otherwise they are packed through a slice buffer.
  constexpr bool in_place() const noexcept { return strides_bytes == nullptr && reversed_bytes() == 0 && !indirect; }
  /// The shape.
  constexpr std::span<const std::uint64_t> extents() const noexcept { return {shape, std::size_t{rank}}; }
};

namespace detail {
/// Stands for the length of a value's text where none is kept: no value of a machine of 32 bits is so long that it
/// should not be counted again.
struct uncounted_text {
  constexpr uncounted_text& operator=(std::uint64_t) noexcept { return *this; }
  constexpr operator std::uint64_t() const noexcept { return 0; }
};
using text_count = std::conditional_t<(sizeof(std::size_t) > 4), std::uint64_t, uncounted_text>;
}  // namespace detail

/// One pair of the header's `__metadata__`.
struct metadata_entry {
  std::string_view key;  ///< UTF-8
  std::string_view value;  ///< UTF-8
  /// of the value in a header, escapes and all; 0: it has not been counted. arrange() sets it.
  [[no_unique_address]] detail::text_count text_bytes{};
};

/// An image without its bytes. The tensors are in image order: dtype descending, then name bytewise, as
/// `safetensors.save` has them; the metadata keys ascend.
struct image_schema {
  const tensor_entry* tensors = nullptr;  ///< `tensor_count` entries.
  std::size_t tensor_count = 0;  ///< Number of tensors.
  const metadata_entry* metadata = nullptr;  ///< `metadata_count` pairs; may be null if there are none.
  std::size_t metadata_count = 0;  ///< Number of pairs.
  /// where the data section starts: 8 bytes of length and the JSON text with its padding
  std::uint64_t header_bytes = 0;
  std::uint64_t image_bytes = 0;  ///< Bytes of header and data section.
  std::uint64_t fingerprint = 0;  ///< See hash_entry().
  /// The tensors are members of a struct, so that BOOL elements are C++ `bool`s in its memory.
  bool of_members = false;

  constexpr std::span<const tensor_entry> entries() const noexcept {
    return {tensors, tensor_count};
  }  ///< The tensors in image order.
  constexpr std::span<const metadata_entry> pairs() const noexcept {
    return {metadata, metadata_count};
  }  ///< The metadata, keys ascending.
  constexpr std::uint64_t data_bytes() const noexcept {
    return image_bytes - header_bytes;
  }  ///< Bytes of the data section.
};

static_assert(sizeof(void*) != 8 || sizeof(tensor_entry) == 56);
/// How much `text_at` can say.
inline constexpr std::uint32_t text_at_mask = (1u << 28) - 1;

/// A strided tensor has at most this many dimensions (`unsupported_layout` above); a contiguous one at most 65,535.
inline constexpr std::size_t max_strided_rank = 64;

/// The reference library reads no longer header text than this, so none is written.
inline constexpr std::uint64_t max_header_text_bytes = 100'000'000;
static_assert(8 + max_header_text_bytes <= text_at_mask);

/// The image order.
constexpr bool image_order(dtype a_type, std::string_view a_name, dtype b_type, std::string_view b_name) noexcept {
  return a_type != b_type ? a_type > b_type : a_name < b_name;
}

/// Adds one tensor to a fingerprint. A fingerprint is XXH3-64, seed 0, of these bytes for each tensor in image order:
/// name length (u32), name, dtype's value (u8), rank (u16), each extent (u64); all little-endian, nothing between.
/// `extent` stands in place of the tensor's own of a dimension that it has, as that of a slice.
constexpr void hash_entry(xxh3_64& hash, const tensor_entry& entry, std::size_t dimension,
                          std::uint64_t extent) noexcept {
  const auto put = [&hash](std::uint64_t value, std::size_t n) {
    const char bytes[8] = {static_cast<char>(value & 0xff),       static_cast<char>(value >> 8 & 0xff),
                           static_cast<char>(value >> 16 & 0xff), static_cast<char>(value >> 24 & 0xff),
                           static_cast<char>(value >> 32 & 0xff), static_cast<char>(value >> 40 & 0xff),
                           static_cast<char>(value >> 48 & 0xff), static_cast<char>(value >> 56 & 0xff)};
    hash.update(bytes, n);
  };
  put(entry.name.size(), 4);
  hash.update(entry.name);
  put(static_cast<std::uint64_t>(entry.type) | std::uint64_t{entry.rank} << 8, 3);
  for (std::size_t i = 0; i < entry.rank; ++i) put(i == dimension ? extent : entry.shape[i], 8);
}
/// The same for the tensor as it is.
constexpr void hash_entry(xxh3_64& hash, const tensor_entry& entry) noexcept { hash_entry(hash, entry, entry.rank, 0); }

/// The index of the tensor whose bytes hold `data_offset`; tensor_count at or behind the end. Never an empty tensor.
/// O(log n).
constexpr std::size_t tensor_at(const image_schema& schema, std::uint64_t data_offset) noexcept {
  std::size_t first = 0, last = schema.tensor_count;
  while (first < last) {
    const std::size_t middle = first + (last - first) / 2;
    if (schema.tensors[middle].end <= data_offset) first = middle + 1;
    else last = middle;
  }
  return first;
}

namespace detail {
/// The index of the tensor of that name; tensor_count if there is none. Cost: a binary search for each dtype in use.
inline std::size_t find_tensor(const image_schema& schema, std::string_view name) noexcept {
  const auto first_from = [&](std::size_t from, auto before) noexcept {
    for (std::size_t n = schema.tensor_count - from; n > 0;) {
      const std::size_t half = n / 2;
      if (before(schema.tensors[from + half])) {
        from += half + 1;
        n -= half + 1;
      } else {
        n = half;
      }
    }
    return from;
  };
  for (std::size_t run = 0; run < schema.tensor_count;) {  // tensors of one dtype, whose names ascend
    const dtype type = schema.tensors[run].type;
    const std::size_t i = first_from(run,
                                     [&](const tensor_entry& t) { return image_order(t.type, t.name, type, name); });
    if (i < schema.tensor_count && schema.tensors[i].type == type && schema.tensors[i].name == name) return i;
    run = first_from(i, [&](const tensor_entry& t) { return t.type >= type; });
  }
  return schema.tensor_count;
}
}  // namespace detail

}  // namespace tensorpull
