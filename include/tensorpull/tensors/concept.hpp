// The tensor slot of a pipeline: where a model's tensors are. examples/eigen_tensors.cpp is a complete policy for a
// library's matrices.
#pragma once

#include <tensorpull/image/view.hpp>

#include <concepts>

namespace tensorpull {

/// A tensor policy T:
///  1. `T::is_tensor_policy` names a type, any;
///  2. `T::model_type`: what add_tensors takes and download_tensors fills: the tensors themselves, or an object made of
///  views of them;
///  3. `T::is_static`: whether the schema is a constant; then `T::schema()` gives it;
///  4. `T::source(model)`: the image of what is there, for reading; borrows the model, which outlives the view;
///  5. `T::destination(model)`, unless models are only read: the image to land in; called when a pull begins, so that
///  it can prepare for that. Its
///     tensors are contiguous in C order and do not overlap. A model that cannot be landed in gives a schema that no
///     owner has. Tensors that no address leads to are `indirect`: image/view.hpp has the reader and the writer that
///     the two views then need.
///  6. optionally `T::landed(model)`: what is left to do when a pull into destination(model) has ended well; cannot
///  fail.
/// None throws or allocates: what can fail, fails when the model is made (dynamic_image::make), with a tensor's name.
template <class T>
concept tensor_policy = requires(const typename T::model_type& from) {
  typename T::is_tensor_policy;
  requires std::same_as<decltype(T::is_static), const bool>;
  { T::source(from) } noexcept -> std::same_as<source_view>;
} && (!T::is_static || requires {
                          { T::schema() } -> std::same_as<const image_schema&>;
                        }) && (!requires(typename T::model_type& to) { T::destination(to); } || requires(typename T::model_type& to) {
  { T::destination(to) } noexcept -> std::same_as<destination_view>; }) && (!requires(typename T::model_type& to) { T::landed(to); } || requires(typename T::model_type& to) {
  { T::landed(to) } noexcept; });

namespace detail {
/// The number of the first requirement that T misses, or 0: `pipeline` has a sentence for each.
template <class T>
constexpr int missed_of_tensors() noexcept {
  if constexpr (tensor_policy<T>) return 0;
  else if constexpr (!requires { typename T::is_tensor_policy; }) return 1;
  else if constexpr (!requires { typename T::model_type; }) return 2;
  else if constexpr (!requires { requires std::same_as<decltype(T::is_static), const bool>; }) return 3;
  else if constexpr (T::is_static && !requires {
                       { T::schema() } -> std::same_as<const image_schema&>;
                     })
    return 3;
  else if constexpr (!requires(const typename T::model_type& from) {
                       { T::source(from) } noexcept -> std::same_as<source_view>;
                     })
    return 4;
  else if constexpr (requires(typename T::model_type& to) {
                       { T::destination(to) } noexcept -> std::same_as<destination_view>;
                     })
    return 6;
  else return requires(typename T::model_type& to) { T::destination(to); } ? 5 : 6;
}

/// Whether models of T can be landed in.
template <class T>
concept lands = requires(typename T::model_type& to) { T::destination(to); };

template <class Tensors>
void after_landing(typename Tensors::model_type& model) noexcept {
  if constexpr (requires { Tensors::landed(model); }) Tensors::landed(model);
}
}  // namespace detail

}  // namespace tensorpull
