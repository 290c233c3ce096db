// Tensors in a safetensors file: the policy that publishes them. consumers/any_schema/safetensors_file.hpp writes such
// files.
#pragma once

#include <tensorpull/tensors/concept.hpp>
#include <tensorpull/tensors/safetensors/safetensors_image.hpp>

namespace tensorpull {

/// A tensor policy. Its model is a file that was opened for reading, so it has no destination.
struct safetensors_tensors {
  using is_tensor_policy = void;
  using model_type = safetensors_image;
  static constexpr bool is_static = false;

  /// The schema of the file's tensors.
  static const image_schema& schema(const model_type& model) noexcept { return model.schema(); }
  static source_view source(const model_type& model) noexcept { return model.source(); }
};

static_assert(tensor_policy<safetensors_tensors>);

}  // namespace tensorpull
