// PyTorch's tensors: the policy for modules and state dicts of libtorch. Decides which tensors an image can have, which
// of them are tied, and what a landing does to autograd. Needs libtorch (component torch), of which it includes the
// tensor alone.
#pragma once

#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/tensors/concept.hpp>
#include <tensorpull/tensors/torch/detail/torch_dtype.hpp>
#include <tensorpull/tensors/torch/detail/torch_reader.hpp>
#include <tensorpull/tensors/torch/detail/torch_ties.hpp>

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensorpull {

// Elements that are read through torch are sent as torch has them in memory.
static_assert(little_endian_machine, "tensorpull: PyTorch's tensors are not supported on big-endian machines");

/// The tensors of a module or a state dict as an image. Holds torch's handles, so the memory lives as long as this; the
/// bytes stay the module's own. `from` is a torch::nn::Module (its parameters and buffers; of a Sequential:
/// *sequential), or anything that is iterated as names and tensors: std::map, OrderedDict, c10::Dict<std::string,
/// at::Tensor>, a vector of pairs.
/// A tensor whose storage is exchanged later (set_data, resize_, module->to(...)) is not followed: make another.
///
/// Tied tensors (same memory, dtype, shape and strides) are one tensor of the image under the name that sorts first,
/// and the metadata names the others, as safetensors.torch.save_model records it. Tensors that share only a part of
/// their memory, or see it with another shape, are sent each by itself: save_model drops all but one of them, and then
/// no recipient can make the others again.
class torch_model {
 public:
  /// For reading. Any strides; on any device; conjugated, negated: packed a slice at a time, never as a whole. Errors,
  /// with the tensor's name: unsupported_dtype; unsupported_layout (sparse, quantised, meta, nested: no bytes in C
  /// order); invalid_argument (an undefined tensor); those of dynamic_image.
  template <class Tensors>
  [[nodiscard]] static result<torch_model> make(const Tensors& from,
                                                std::span<const metadata_entry> metadata = {}) noexcept {
    return make_from(from, metadata, false);
  }
  /// For landing in, and reading. On any device, and in any order of dimensions (channels_last, transposed) that leaves
  /// no gaps: what is not contiguous in the CPU's memory is landed in through 64 KiB of this model's, by torch's
  /// copies, so one pull at a time may land in it. Further errors: unsupported_layout for a tensor with gaps, one that
  /// is conjugated or negated, or one that shares memory with another that it is not tied to: the bytes of one would
  /// overwrite the other.
  template <class Tensors>
  [[nodiscard]] static result<torch_model> make_writable(const Tensors& from,
                                                         std::span<const metadata_entry> metadata = {}) noexcept {
    return make_from(from, metadata, true);
  }

  /// Valid while the model lives, also after a move.
  const image_schema& schema() const noexcept { return image_.schema(); }
  /// Whether make_writable() made it.
  bool writable() const noexcept { return image_.writable(); }
  source_view source() const noexcept { return image_.source(); }

  /// To land in. Tells autograd that every tensor was changed in place, as torch's own in-place operations do: a graph
  /// that saved one of them fails in backward() instead of giving gradients of mixed weights. Nothing else changes:
  /// requires_grad, grad, being a leaf. Tensors of inference mode have no version to count. A model made for reading
  /// takes nothing (schema_mismatch).
  destination_view destination() noexcept {
    if (!writable()) return {&nothing, nullptr, nullptr};
    for (const named_torch_tensor& t : *tensors_)
      if (!t.tensor.is_inference()) t.tensor.unsafeGetTensorImpl()->bump_version();
    return image_.destination();
  }

 private:
  using tensor_list_type = std::vector<named_torch_tensor>;

  // An image that no owner has: what is landed in is refused before a byte.
  static constexpr image_schema nothing{nullptr, 0, nullptr, 0, 16, 16, 1};

  static constexpr std::size_t staging_bytes = 64 * 1024;

  torch_model(std::unique_ptr<tensor_list_type> tensors, dynamic_image image,
              std::unique_ptr<std::byte[]> staging) noexcept
      : tensors_(std::move(tensors)), staging_(std::move(staging)), image_(std::move(image)) {}

  template <class Tensors>
  static void collect(const Tensors& from, tensor_list_type& to) {
    if constexpr (requires {
                    from.named_parameters();
                    from.named_buffers();
                  }) {
      collect(from.named_parameters(), to);
      for (const auto& buffer : from.named_buffers())
        if (buffer.value().defined()) to.push_back({buffer.key(), buffer.value()});
    } else {
      for (const auto& item : from) {
        if constexpr (requires {
                        item.key();
                        item.value();
                      }) {
          to.push_back({std::string(item.key()), item.value()});
        } else {
          const auto& [name, tensor] = item;
          to.push_back({std::string(name), tensor});
        }
      }
    }
  }

  static result<dtype> check(const named_torch_tensor& t, std::size_t index) {
    if (!t.tensor.defined()) return failure(errc::invalid_argument, index, std::string_view(t.name));
    if (t.tensor.layout() != at::kStrided || t.tensor.is_quantized() || t.tensor.is_meta() || t.tensor.is_nested() ||
        !t.tensor.has_storage())
      return failure(errc::unsupported_layout, index, std::string_view(t.name));
    const auto type = from_torch(t.tensor.scalar_type());
    if (!type || (*type == dtype::f4 && t.tensor.dim() == 0))
      return failure(errc::unsupported_dtype, index, std::string_view(t.name));
    return *type;
  }

  template <class Tensors>
  static result<torch_model> make_from(const Tensors& from, std::span<const metadata_entry> metadata,
                                       bool writable) noexcept {
    try {
      auto tensors = std::make_unique<tensor_list_type>();
      collect(from, *tensors);
      return make_of(std::move(tensors), metadata, writable);
    } catch (const std::bad_alloc&) {
      return failure(errc::out_of_memory);
    } catch (...) {  // what torch refuses
      return failure(errc::invalid_argument);
    }
  }

  static result<torch_model> make_of(std::unique_ptr<tensor_list_type> tensors,
                                     std::span<const metadata_entry> metadata, bool writable) {
    std::sort(tensors->begin(), tensors->end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    std::vector<dtype> types;
    std::size_t dimensions = 0;
    for (std::size_t i = 0; i < tensors->size(); ++i) {
      const auto type = check((*tensors)[i], i);
      if (!type) return failure(type.error());
      types.push_back(*type);
      dimensions += static_cast<std::size_t>((*tensors)[i].tensor.dim());
    }
    const std::vector<std::size_t> kept = detail::find_torch_ties(*tensors);

    std::vector<std::uint64_t> extents(dimensions);
    std::vector<std::int64_t> strides(dimensions);
    std::vector<tensor_view> views;
    std::vector<mutable_tensor_view> destinations;
    std::vector<metadata_entry> pairs(metadata.begin(), metadata.end());
    std::size_t used = 0;
    bool any_staged = false;
    for (std::size_t i = 0; i < tensors->size(); ++i) {
      const std::string& name = (*tensors)[i].name;
      const at::Tensor& tensor = (*tensors)[i].tensor;
      if (kept[i] != i) {
        const bool said = std::any_of(metadata.begin(), metadata.end(),
                                      [&](const metadata_entry& pair) { return pair.key == name; });
        if (!said) pairs.push_back({name, (*tensors)[kept[i]].name});
        continue;
      }
      const auto rank = static_cast<std::size_t>(tensor.dim());
      const bool staged = writable && (!tensor.device().is_cpu() || !tensor.is_contiguous());
      const bool reader = staged || detail::needs_torch_reader(tensor), plain = reader || tensor.is_contiguous();
      if (writable && (tensor.is_conj() || tensor.is_neg() || (staged && types[i] == dtype::f4) ||
                       !tensor.unsafeGetTensorImpl()->is_non_overlapping_and_dense()))
        return failure(errc::unsupported_layout, i, std::string_view(name));
      for (std::size_t d = 0; d < rank; ++d) {
        extents[used + d] = static_cast<std::uint64_t>(tensor.sizes()[d]);
        strides[used + d] = tensor.strides()[d] * static_cast<std::int64_t>(tensor.element_size());
      }
      if (types[i] == dtype::f4) extents[used + rank - 1] *= 2;
      const std::span<const std::uint64_t> shape(extents.data() + used, rank);
      const std::span<const std::int64_t> steps = plain ? std::span<const std::int64_t>()
                                                        : std::span<const std::int64_t>(strides.data() + used, rank);
      used += rank;
      if (!writable) {
        const auto* const data = reader ? reinterpret_cast<const std::byte*>(&tensor) : detail::torch_bytes(tensor);
        views.push_back({name, types[i], shape, data, steps, 0, reader});
      } else {
        auto* const at = reader ? reinterpret_cast<std::byte*>(&(*tensors)[i].tensor)
                                : static_cast<std::byte*>(tensor.data_ptr());
        destinations.push_back({name, types[i], shape, at, {}, reader});
        any_staged = any_staged || reader;
      }
    }
    if (writable) {
      if (any_staged)
        if (const auto apart = check_apart(*tensors, kept); !apart) return failure(apart.error());
      std::unique_ptr<std::byte[]> staging(any_staged ? new std::byte[staging_bytes] : nullptr);
      auto image = dynamic_image::make(destinations, pairs,
                                       destination_writer{&detail::write_torch,
                                                          nullptr,
                                                          {staging.get(), any_staged ? staging_bytes : 0},
                                                          &detail::torch_source_reader});
      if (!image) return failure(image.error());
      return torch_model(std::move(tensors), std::move(*image), std::move(staging));
    }
    auto image = dynamic_image::make(views, pairs, detail::torch_source_reader);
    if (!image) return failure(image.error());
    return torch_model(std::move(tensors), std::move(*image), nullptr);
  }

  /// Whether no byte is of two tensors that are landed in. They are dense, so each is one range of its device's memory.
  static result<void> check_apart(const tensor_list_type& tensors, const std::vector<std::size_t>& kept) {
    struct range {
      c10::Device device;
      const std::byte* begin;
      std::size_t bytes, index;
    };
    std::vector<range> all;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor& t = tensors[i].tensor;
      if (kept[i] == i && t.numel() != 0)
        all.push_back({t.device(), static_cast<const std::byte*>(t.const_data_ptr()), t.nbytes(), i});
    }
    std::sort(all.begin(), all.end(), [](const range& a, const range& b) { return a.begin < b.begin; });
    for (std::size_t i = 0; i < all.size(); ++i)
      for (std::size_t k = i + 1; k < all.size() && all[k].begin < all[i].begin + all[i].bytes; ++k)
        if (all[k].device == all[i].device)
          return failure(errc::unsupported_layout, all[k].index, std::string_view(tensors[all[k].index].name));
    return {};
  }

  std::unique_ptr<tensor_list_type> tensors_;  // its tensors' addresses are what read_torch and write_torch are given
  std::unique_ptr<std::byte[]> staging_;  // none if every tensor is landed in directly
  dynamic_image image_;
};

/// The tensor policy.
struct torch_tensors {
  using is_tensor_policy = void;
  using model_type = torch_model;
  static constexpr bool is_static = false;

  /// The schema of this model.
  static const image_schema& schema(const model_type& model) noexcept { return model.schema(); }
  static source_view source(const model_type& model) noexcept { return model.source(); }
  static destination_view destination(model_type& model) noexcept { return model.destination(); }
};

static_assert(tensor_policy<torch_tensors>);

}  // namespace tensorpull
