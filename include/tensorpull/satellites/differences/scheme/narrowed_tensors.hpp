// Which tensors a scheme quantises: weight matrices, all, or those with given names. The others travel whole.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tensorpull {

/// A choice of tensors: `narrows(name, shape, block_elements)`, of floating ones, whose blocks have so many elements.
/// Both ends name the same one, as they do the scheme, since nothing on the wire has it.
template <class C>
concept tensor_filter = requires(std::string_view name, std::span<const std::uint64_t> shape, std::size_t elements) {
  { C::narrows(name, shape, elements) } noexcept -> std::same_as<bool>;
};

/// Tensors of two dimensions or more with at least a block's elements. Others save few bytes, and a rounding error
/// spoils some of them: variances of unlike size, scales, biases.
struct matrices {
  /// Whether it is one.
  static constexpr bool narrows(std::string_view, std::span<const std::uint64_t> shape,
                                std::size_t block_elements) noexcept {
    if (shape.size() < 2) return false;
    std::uint64_t elements = 1;  // up to a block's: a product of another party's extents may overflow
    for (const std::uint64_t extent : shape)
      if (extent == 0) return false;
    for (const std::uint64_t extent : shape) {
      if (extent >= block_elements) return true;
      elements *= extent;
      if (elements >= block_elements) return true;
    }
    return false;
  }
};

/// All floating tensors, such as those of a model that is one vector.
struct all_tensors {
  /// They are.
  static constexpr bool narrows(std::string_view, std::span<const std::uint64_t>, std::size_t) noexcept { return true; }
};

/// A name as a template argument: "layers.0.weight".
template <std::size_t N>
struct tensor_name {
  char text[N]{};  ///< zero-terminated
  /// Copies a string literal.
  constexpr tensor_name(const char (&name)[N]) noexcept {
    for (std::size_t i = 0; i < N; ++i) text[i] = name[i];
  }
  /// Whether it is this name.
  constexpr bool is(std::string_view name) const noexcept { return name == std::string_view(text, N - 1); }
};
/// The tensors with these names: `tensors_named<"flat", "head.bias">`.
template <tensor_name... Names>
struct tensors_named {
  /// Whether it is one of them.
  static constexpr bool narrows(std::string_view name, std::span<const std::uint64_t>, std::size_t) noexcept {
    return (Names.is(name) || ...);
  }
};

static_assert(tensor_filter<matrices> && tensor_filter<all_tensors> && tensor_filter<tensors_named<"w">>);

}  // namespace tensorpull
