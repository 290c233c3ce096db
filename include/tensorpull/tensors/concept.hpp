// The tensor slot of a pipeline: where a model's tensors are. examples/eigen_tensors.cpp is a complete policy for a
// library's matrices.
#pragma once

#include <tensorpull/core/requirements.hpp>
#include <tensorpull/image/view.hpp>

#include <concepts>
#include <utility>

namespace tensorpull {

namespace detail {
/// Whether models of T can be landed in.
template <class T>
concept lands = requires(typename T::model_type& to) { T::destination(to); };
/// Whether T has a function that drivers of models once called and nothing calls now.
template <class T>
concept says_landed = requires(typename T::model_type& to) { T::landed(to); };

/// The requirements of a tensor policy; their meaning stands at the concept.
template <class T, bool Silent = true, class Instead = nothing_instead>
struct tensor_requirements : Instead {
  static constexpr bool met_1 = requires { typename T::is_tensor_policy; };

  static constexpr bool met_2 = met_1 && requires { typename T::model_type; };
  static_assert(Silent || met_2 == met_1,
                "tensorpull: a tensor policy names the type of its models (requirement 2): using model_type = ...;");

  static constexpr bool says_static = requires { requires std::same_as<decltype(T::is_static), const bool>; };
  static constexpr bool has_schema = requires {
    { T::schema() } -> std::same_as<const image_schema&>;
  };
  static constexpr bool met_3 = met_2 && says_static && (has_schema || requires { requires !T::is_static; });
  static_assert(
      Silent || met_3 == met_2,
      "tensorpull: a tensor policy says whether its schema is constant (requirement 3): static constexpr bool is_static; "
      "if true, static constexpr const image_schema& schema()");

  static constexpr bool met_4 = met_3 && requires {
    { T::source(std::declval<const typename T::model_type&>()) } noexcept -> std::same_as<source_view>;
  };
  static_assert(
      Silent || met_4 == met_3,
      "tensorpull: a tensor policy gives what to read (requirement 4): static source_view source(const model_type&) noexcept");

  static constexpr bool gives_destination = requires {
    { T::destination(std::declval<typename T::model_type&>()) } noexcept -> std::same_as<destination_view>;
  };
  static constexpr bool met_5 = met_4 && (gives_destination || !lands<T>);
  static_assert(
      Silent || met_5 == met_4,
      "tensorpull: a tensor policy gives where to land (requirement 5): static destination_view destination(model_type&) noexcept");

  static constexpr bool met_6 = met_5 && !says_landed<T>;
  static_assert(
      Silent || met_6 == met_5,
      "tensorpull: nothing calls landed(model) of a tensor policy (requirement 6): its destination(model) names what is left to do, destination_view::landed");
};
}  // namespace detail

/// A tensor policy T:
///  1. `T::is_tensor_policy` names a type, any;
///  2. `T::model_type`: what add_tensors takes and download_tensors fills: the tensors themselves, or an object made of
///     views of them;
///  3. `T::is_static`: whether the schema is a constant; then `T::schema()` gives it;
///  4. `T::source(model)`: the image of what is there, for reading; borrows the model, which outlives the view;
///  5. `T::destination(model)`, unless models are only read: the image to land in; called when a pull begins, so that
///     it can prepare for that. Its tensors are contiguous in C order and do not overlap. A model that cannot be landed
///     in gives a schema that no owner has. Tensors that no address leads to are `indirect`: image/view.hpp has the
///     reader and the writer that the two views then need.
///  6. what is left to do when all has landed (a copy to a member that is tied, say) is in the view that destination()
///     gives, `destination_view::landed`: every consumer calls it, and not only download_tensors. T has no
///     `landed(model)`.
/// None throws or allocates: what can fail, fails when the model is made (dynamic_image::make), with a tensor's name.
template <class T>
concept tensor_policy = detail::tensor_requirements<T>::met_6;

}  // namespace tensorpull
