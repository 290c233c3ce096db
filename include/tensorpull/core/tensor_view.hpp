// A tensor that somebody else owns, described at run time: name, dtype, shape, address, strides. What adapters hand to an image.
#pragma once

#include <tensorpull/core/checked.hpp>
#include <tensorpull/core/dtype.hpp>
#include <tensorpull/core/result.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

namespace tensorpull {

/// One tensor for reading. Nothing is owned: all that it points to outlives it.
struct tensor_view {
  /// as the image lists it; UTF-8
  std::string_view name;
  /// of each element
  dtype type = dtype::u8;
  /// elements in each dimension, outermost first; empty for a scalar
  std::span<const std::uint64_t> shape;
  /// the element with index 0 in every dimension; may be null if the tensor has no elements
  const std::byte* data = nullptr;
  /// bytes from one index to the next in each dimension, may be 0 or negative; empty: C-contiguous
  std::span<const std::int64_t> strides_bytes = {};
  /// 2, 4 or 8: the tensor's numbers have that many bytes (those of c64: 4) and lie in the other byte order
  std::uint8_t swap_bytes = 0;
  /// `data` is no address but a token for the image's source_reader (image/view.hpp), which gives the bytes as the image has them
  bool indirect = false;
};

/// One tensor for writing.
struct mutable_tensor_view {
  std::string_view name;                                ///< as in tensor_view
  dtype type = dtype::u8;                               ///< as in tensor_view
  std::span<const std::uint64_t> shape;                 ///< as in tensor_view
  std::byte* data = nullptr;                            ///< where the elements go
  std::span<const std::int64_t> strides_bytes = {};     ///< as in tensor_view

  constexpr operator tensor_view() const noexcept { return {name, type, shape, data, strides_bytes, 0, false}; }
};

/// Elements of a tensor; 1 for a scalar. Refuses, as the reference library does, any product that overflows from the left.
constexpr result<std::uint64_t> element_count(std::span<const std::uint64_t> shape) noexcept {
  std::uint64_t elements = 1;
  for (const std::uint64_t extent : shape) {
    const auto product = checked_multiply(elements, extent);
    if (!product) return failure(errc::size_overflow);
    elements = *product;
  }
  return elements;
}

/// Bytes of a tensor in an image. A packed dtype must fill whole bytes (`unsupported_dtype` otherwise); the size must be
/// addressable here (`size_overflow` otherwise).
constexpr result<std::uint64_t> size_bytes(dtype type, std::span<const std::uint64_t> shape) noexcept {
  if (!is_valid(type)) return failure(errc::unsupported_dtype);
  const auto elements = element_count(shape);
  if (!elements) return failure(elements.error());
  const auto total_bits = checked_multiply(*elements, bits(type));
  if (!total_bits || *total_bits / 8 > std::numeric_limits<std::size_t>::max() / 2) return failure(errc::size_overflow);
  if (*total_bits % 8 != 0) return failure(errc::unsupported_dtype);
  return *total_bits / 8;
}

/// Whether the strides are those of a C-contiguous tensor. Dimensions of one element, and tensors of none, may have any stride.
/// Requires strides and shape of equal length and a size that size_bytes accepted.
constexpr bool is_contiguous(dtype type, std::span<const std::uint64_t> shape, std::span<const std::int64_t> strides_bytes) noexcept {
  if (strides_bytes.empty()) return true;
  for (const std::uint64_t extent : shape)
    if (extent == 0) return true;
  std::uint64_t expected = bits(type) / 8;
  if (expected * 8 != bits(type)) return false;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 1) continue;
    if (strides_bytes[i] < 0 || static_cast<std::uint64_t>(strides_bytes[i]) != expected) return false;
    expected *= shape[i];
  }
  return true;
}

static_assert(*size_bytes(dtype::f32, {}) == 4);

}  // namespace tensorpull
