// How a model becomes an image that is published: all that an owner needs of its pipeline's tensor policy.
#pragma once

#include <tensorpull/core/ids.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/protocol/owner/transaction.hpp>
#include <tensorpull/std/any.hpp>

#include <concepts>
#include <type_traits>
#include <utility>

namespace tensorpull {

namespace detail {
struct no_region {};
/// The memory that other programs can be given, if a pointer leads into such memory.
template <class Pointer>
auto region_of(const Pointer& p) noexcept {
  if constexpr (requires { p.region(); }) return p.region();
  else return no_region{};
}
}  // namespace detail

/// `Self` derives from it, and has `published()`, which publishes images (image_publisher); `Tensors`: the policy.
template <class Self, class Tensors>
class adding_tensors {
 public:
  using tensors = Tensors;  ///< the pipeline's tensor policy
  using model_type = typename Tensors::model_type;  ///< what is published

  /// Publishes a model that the caller keeps: it must not change until it is settled or withdrawn. Cost: as
  /// image_publisher::add_image. Errors: the same; what the tensor policy finds (unsupported_layout, ...).
  result<reference> add_tensors(const model_type& model, const publish_options& options = {}) noexcept {
    return to().add_image(Tensors::source(model), options);
  }
  /// Publishes a model that is handed over (`add_tensors(std::move(model))`): it is kept, and released when its
  /// transaction has settled and that has been told. One more error: out_of_memory.
  template <class Model>
    requires(std::is_same_v<Model, model_type>)
  result<reference> add_tensors(Model&& model, const publish_options& options = {}) {
    unique_any keep;
    const auto* const kept = keep.keep(std::forward<Model>(model));
    if (kept == nullptr) return failure(errc::out_of_memory);
    return to().add_image(Tensors::source(*kept), options, std::move(keep));
  }
  /// The same for a pointer that owns a model (std::shared_ptr, std::unique_ptr, model_ptr).
  template <class Pointer>
    requires(!std::is_pointer_v<Pointer> &&
             requires(const Pointer& p) {
               { *p } -> std::convertible_to<const model_type&>;
             })
  result<reference> add_tensors(Pointer pointer, const publish_options& options = {}) {
    const model_type& model = *pointer;
    const auto region = detail::region_of(pointer);
    unique_any keep;
    if (keep.keep(std::move(pointer)) == nullptr) return failure(errc::out_of_memory);
    const auto done = to().add_image(Tensors::source(model), options, std::move(keep));
    if constexpr (requires { to().share(*done, Tensors::source(model), region); })
      // with digests of tensors it is another image than the one in that memory
      if (done && !options.tensor_digests) to().share(*done, Tensors::source(model), region);
    return done;
  }
  /// Refuses a constant temporary, which can be neither kept nor borrowed.
  template <class Model>
    requires(std::is_same_v<Model, const model_type>)
  result<reference> add_tensors(Model&&, const publish_options& = {}) noexcept {
    static_assert(
        !std::is_const_v<Model>,
        "tensorpull: add_tensors was given a constant temporary, which can be neither kept (it is constant) nor borrowed (it is a temporary): "
        "give the model a name, or drop the const");
    return failure(errc::withdrawn);
  }

 private:
  auto& to() noexcept { return static_cast<Self&>(*this).published(); }
};

}  // namespace tensorpull
