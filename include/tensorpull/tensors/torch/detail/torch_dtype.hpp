// Which of torch's element types is which of ours. By name, so that one table serves every libtorch: older ones lack
// the later types.
#pragma once

#include <tensorpull/core/dtype.hpp>

#include <c10/core/ScalarType.h>

#include <optional>
#include <string_view>

namespace tensorpull {

namespace detail {
struct torch_dtype_row {
  std::string_view name;
  dtype type;
};
inline constexpr torch_dtype_row torch_dtypes[] = {
    {"Bool", dtype::boolean},
    {"Byte", dtype::u8},
    {"Char", dtype::i8},
    {"Short", dtype::i16},
    {"UInt16", dtype::u16},
    {"Int", dtype::i32},
    {"UInt32", dtype::u32},
    {"Long", dtype::i64},
    {"UInt64", dtype::u64},
    {"Half", dtype::f16},
    {"BFloat16", dtype::bf16},
    {"Float", dtype::f32},
    {"Double", dtype::f64},
    {"ComplexFloat", dtype::c64},
    {"Float8_e5m2", dtype::f8_e5m2},
    {"Float8_e4m3fn", dtype::f8_e4m3},
    {"Float8_e5m2fnuz", dtype::f8_e5m2fnuz},
    {"Float8_e4m3fnuz", dtype::f8_e4m3fnuz},
    {"Float8_e8m0fnu", dtype::f8_e8m0},
    {"Float4_e2m1fn_x2", dtype::f4},
};
}  // namespace detail

/// The dtype of an image for torch's; nothing for those that safetensors lacks (ComplexDouble, quantised types, ...).
/// An element of Float4_e2m1fn_x2 is two of f4: the last extent of such a tensor is twice as long in the image.
inline std::optional<dtype> from_torch(c10::ScalarType type) noexcept {
  const std::string_view name = c10::toString(type);
  for (const auto& row : detail::torch_dtypes)
    if (row.name == name) return row.type;
  return std::nullopt;
}

/// The inverse; nothing for f6 types, and for those that this libtorch lacks.
inline std::optional<c10::ScalarType> to_torch(dtype type) noexcept {
  for (const auto& row : detail::torch_dtypes) {
    if (row.type != type) continue;
    for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i)
      if (row.name == c10::toString(static_cast<c10::ScalarType>(i))) return static_cast<c10::ScalarType>(i);
  }
  return std::nullopt;
}

}  // namespace tensorpull
