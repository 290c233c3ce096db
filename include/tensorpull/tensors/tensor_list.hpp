// Tensors that are known only at run time: a list of views. The policy for models whose shape no struct describes, and
// for adapters.
#pragma once

#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/tensors/concept.hpp>

namespace tensorpull {

/// A tensor policy. Its model is a dynamic_image, which the user makes from views of any library's tensors.
struct tensor_list {
  using is_tensor_policy = void;
  using model_type = dynamic_image;
  static constexpr bool is_static = false;

  /// The schema of this model.
  static const image_schema& schema(const model_type& model) noexcept { return model.schema(); }
  static source_view source(const model_type& model) noexcept { return model.source(); }
  /// Whether destination may be called: the image was made from mutable views.
  static bool writable(const model_type& model) noexcept { return model.writable(); }
  static destination_view destination(model_type& model) noexcept { return model.destination(); }
};

}  // namespace tensorpull
