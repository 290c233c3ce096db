// Arrays as NumPy describes them: a type, a shape, strides in bytes. Decides which of them become tensors without a
// copy. Needs no Python.
#pragma once

#include <tensorpull/tensors/concept.hpp>
#include <tensorpull/tensors/numpy/numpy_descr.hpp>
#include <tensorpull/tensors/tensor_list.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string_view>

namespace tensorpull {

/// How the elements of an array without strides follow each other: the last index changes fastest (c), or the first.
enum class numpy_order : std::uint8_t {
  c,
  fortran,
};

/// One array, described with the words of `numpy.ndarray`; Byte is `const std::byte` to read it, `std::byte` to write
/// it too. Owns nothing.
template <class Byte>
struct basic_numpy_array {
  /// UTF-8
  std::string_view name;
  /// `dtype.str` ("<f4", ">i8", "|b1"); `dtype.name` for a type of ml_dtypes ("bfloat16"), whose str does not say what
  /// it is
  std::string_view descr;
  /// extents, outermost first
  std::span<const std::uint64_t> shape;
  /// the element with index 0 in every dimension: `__array_interface__["data"][0]`
  Byte* data = nullptr;
  /// `strides`: bytes from one index to the next, may be 0 or negative; empty: contiguous, in this order
  std::span<const std::int64_t> strides_bytes = {};
  /// used only if there are no strides
  numpy_order order = numpy_order::c;
  /// The meaning of the bits of unsigned integers or of void, for the types that NumPy itself lacks: bf16 in "<u2" or
  /// "|V2", f8_* in "|u1"
  std::optional<dtype> bits_of = {};
};
/// An array to read.
using numpy_array = basic_numpy_array<const std::byte>;
/// An array to read and to write.
using mutable_numpy_array = basic_numpy_array<std::byte>;

/// The type of an array with bits_of. Error: unsupported_dtype.
[[nodiscard]] constexpr result<numpy_format> numpy_format_of(std::string_view descr,
                                                             std::optional<dtype> bits_of) noexcept {
  if (!bits_of) return parse_numpy_descr(descr);
  const unsigned width = bits(*bits_of);
  if (width == 8 && (descr == "|V1" || descr == "<V1" || descr == ">V1")) return numpy_format{*bits_of, 0};
  if (width == 16 && (descr == "|V2" || descr == "<V2")) return numpy_format{*bits_of, 0};
  auto format = parse_numpy_descr(descr);
  if (!format) return format;
  const bool whole = format->type == dtype::u8 || format->type == dtype::u16;
  if (!whole || bits(format->type) != width) return failure(errc::unsupported_dtype);
  format->type = *bits_of;
  return format;
}

/// The tensor policy for arrays of NumPy's. Its model is an image over their memory, which outlives it.
struct numpy_tensors : tensor_list {
  /// To read from: any strides, either byte order; what memory does not hold as the image has it is packed through the
  /// slice buffer as it is sent. Errors, with the array's index in `at` and its name: unsupported_dtype; those of
  /// dynamic_image::make.
  [[nodiscard]] static result<model_type> make(std::span<const numpy_array> arrays,
                                               std::span<const metadata_entry> metadata = {}) noexcept {
    std::size_t dimensions = 0;
    for (const numpy_array& array : arrays) dimensions += array.shape.size();
    const std::unique_ptr<tensor_view[]> views(new (std::nothrow) tensor_view[arrays.size()]);
    const std::unique_ptr<std::int64_t[]> strides(new (std::nothrow) std::int64_t[dimensions]);
    if (!views || !strides) return failure(errc::out_of_memory);
    std::span<std::int64_t> room(strides.get(), dimensions);
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      const numpy_array& array = arrays[i];
      const auto format = numpy_format_of(array.descr, array.bits_of);
      if (!format) return failure(format.error().code, i, array.name);
      views[i] = {array.name, format->type, array.shape, array.data, array.strides_bytes, format->swap_bytes, false};
      if (!is_fortran(array)) continue;
      const auto filled = fortran_strides(format->type, array.shape, room);
      if (!filled) return failure(filled.error().code, i, array.name);
      views[i].strides_bytes = room.first(array.shape.size());
      room = room.subspan(array.shape.size());
    }
    return dynamic_image::make({views.get(), arrays.size()}, metadata);
  }

  /// To read and to write: contiguous in C's order, in the machine's byte order. Further errors: unsupported_layout.
  [[nodiscard]] static result<model_type> make(std::span<const mutable_numpy_array> arrays,
                                               std::span<const metadata_entry> metadata = {}) noexcept {
    const std::unique_ptr<mutable_tensor_view[]> views(new (std::nothrow) mutable_tensor_view[arrays.size()]);
    if (!views) return failure(errc::out_of_memory);
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      const mutable_numpy_array& array = arrays[i];
      const auto format = numpy_format_of(array.descr, array.bits_of);
      if (!format) return failure(format.error().code, i, array.name);
      if (format->swap_bytes != 0 || (is_fortran(array) && !same_in_both_orders(array.shape)))
        return failure(errc::unsupported_layout, i, array.name);
      views[i] = {array.name, format->type, array.shape, array.data, array.strides_bytes};
    }
    return dynamic_image::make({views.get(), arrays.size()}, metadata);
  }

 private:
  template <class Byte>
  static constexpr bool is_fortran(const basic_numpy_array<Byte>& array) noexcept {
    return array.strides_bytes.empty() && array.order == numpy_order::fortran;
  }
  /// At most one dimension has more than one element, or another has none.
  static constexpr bool same_in_both_orders(std::span<const std::uint64_t> shape) noexcept {
    std::size_t long_ones = 0;
    for (const std::uint64_t extent : shape) {
      if (extent == 0) return true;
      long_ones += extent > 1;
    }
    return long_ones <= 1;
  }
  static constexpr result<void> fortran_strides(dtype type, std::span<const std::uint64_t> shape,
                                                std::span<std::int64_t> out) noexcept {
    const auto size = size_bytes(type, shape);
    if (!size) return failure(size.error());
    std::uint64_t stride = *size == 0 ? 0 : bits(type) / 8;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      out[i] = static_cast<std::int64_t>(stride);
      stride *= shape[i];  // at most the size
    }
    return {};
  }
};

static_assert(tensor_policy<numpy_tensors>);

}  // namespace tensorpull
