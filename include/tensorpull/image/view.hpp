// An image with the memory that holds its tensors: to read from, or to write to. Decides how an address is found.
#pragma once

#include <tensorpull/image/schema.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tensorpull {

// An image is little-endian. Until elements are swapped on their way (and tested on such a host), say so instead of sending wrong bytes.
static_assert(std::endian::native == std::endian::little, "tensorpull: tensors on big-endian hosts are not supported");

/// Where the bytes of an image come from. Two words and a pointer; owns nothing; all that it points to outlives it.
/// Tensor i, in image order, starts at base + where[i]: one table of offsets serves every object of a static model, and a
/// dynamic image has absolute addresses and a null base.
struct source_view {
  const image_schema* schema = nullptr;
  const std::byte* base = nullptr;
  const std::uintptr_t* where = nullptr;

  const std::byte* address(std::size_t i) const noexcept {
    return reinterpret_cast<const std::byte*>(reinterpret_cast<std::uintptr_t>(base) + where[i]);
  }
};

/// Where the bytes of an image go to. Every tensor is contiguous: who makes one refuses other layouts (`unsupported_layout`).
struct destination_view {
  const image_schema* schema = nullptr;
  std::byte* base = nullptr;
  const std::uintptr_t* where = nullptr;

  std::byte* address(std::size_t i) const noexcept {
    return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(base) + where[i]);
  }
  /// The same memory for reading: to hash what has landed, or to publish it.
  constexpr operator source_view() const noexcept { return {schema, base, where}; }
};

static_assert(std::is_trivially_copyable_v<source_view> && std::is_trivially_copyable_v<destination_view>);

}  // namespace tensorpull
