// A tensor that somebody else owns, described at run time by name, dtype, shape, address and strides. Adapters hand
// these to an image.
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

/// One tensor for reading. It owns nothing: all that it points to must outlive it.
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
  /// 2, 4 or 8: the tensor's numbers have that many bytes (those of c64: 4) and are in the other byte order; 0: they
  /// are in the machine's
  std::uint8_t swap_bytes = 0;
  /// `data` is no address but a token for the image's source_reader (image/view.hpp), which gives the bytes as the
  /// image has them
  bool indirect = false;
};

/// One tensor for writing. It owns nothing.
struct mutable_tensor_view {
  std::string_view name;                                ///< as in tensor_view
  dtype type = dtype::u8;                               ///< as in tensor_view
  std::span<const std::uint64_t> shape;                 ///< as in tensor_view
  std::byte* data = nullptr;                            ///< where the elements go
  std::span<const std::int64_t> strides_bytes = {};     ///< as in tensor_view
  /// `data` is no address but a token for the image's destination_writer (image/view.hpp), which takes the bytes as the
  /// image has them
  bool indirect = false;

  constexpr operator tensor_view() const noexcept { return {name, type, shape, data, strides_bytes, 0, indirect}; }
};

/// Elements of a tensor; 1 for a scalar. size_overflow: the product, taken from the left, does not fit 64 bits, even if
/// a later extent is 0. The reference library refuses the same shapes.
constexpr result<std::uint64_t> element_count(std::span<const std::uint64_t> shape) noexcept {
  std::uint64_t elements = 1;
  for (const std::uint64_t extent : shape) {
    const auto product = checked_multiply(elements, extent);
    if (!product) return failure(errc::size_overflow);
    elements = *product;
  }
  return elements;
}

/// Bytes of a tensor in an image. unsupported_dtype: the value is no dtype, or the elements of a packed dtype do not
/// fill whole bytes. size_overflow: the size is not addressable here.
constexpr result<std::uint64_t> size_bytes(dtype type, std::span<const std::uint64_t> shape) noexcept {
  if (!is_valid(type)) return failure(errc::unsupported_dtype);
  const auto elements = element_count(shape);
  if (!elements) return failure(elements.error());
  const auto total_bits = checked_multiply(*elements, bits(type));
  if (!total_bits || *total_bits / 8 > std::numeric_limits<std::size_t>::max() / 2) return failure(errc::size_overflow);
  if (*total_bits % 8 != 0) return failure(errc::unsupported_dtype);
  return *total_bits / 8;
}

/// Whether the strides are those of a C-contiguous tensor; no strides at all say so. A dimension of one element may
/// have any stride, and so may every dimension of a tensor without elements. Requires strides, if any, and shape of
/// equal length and a size that size_bytes() accepted.
constexpr bool is_contiguous(dtype type, std::span<const std::uint64_t> shape,
                             std::span<const std::int64_t> strides_bytes) noexcept {
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
