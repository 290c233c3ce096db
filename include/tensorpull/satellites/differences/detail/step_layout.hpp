// The tensors of a narrowed step to a model: those that it could have, and once its header is there those that it has.
#pragma once

#include <tensorpull/satellites/differences/narrowed_difference.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tensorpull::detail {

/// The role of a step's tensor for one of the model.
enum class step_part : std::uintptr_t {
  whole,
  codes,
  scales
};

/// The elements of a tensor that is narrowed.
inline std::uint64_t elements_of(const tensor_entry& t) noexcept { return t.size_bytes() / (bits(t.type) / 8); }

/// Memory for all of it is taken by make().
template <class Scheme>
class step_layout {
 public:
  /// A tensor of the step, in the order of its image.
  struct arriving_tensor {
    std::uint64_t begin, end;  // in its data section
    std::size_t of;  // the tensor of the model
    step_part is;
    std::uint64_t size_bytes() const noexcept { return end - begin; }
  };

  /// `in_order`: the model's tensors have to arrive in their order, apart from scales. Errors: those of widened.
  static result<step_layout> make(const image_schema& model, bool in_order) {
    step_layout made(model.tensor_count);
    std::vector<tensor_view> views;
    std::vector<std::string> names(model.tensor_count);
    std::vector<std::uint64_t> counts(2 * model.tensor_count);  // blocks, and bytes of codes
    for (std::size_t i = 0; i < model.tensor_count; ++i) {
      const tensor_entry& t = model.tensors[i];
      if (t.indirect || t.swap_bytes != 0 || t.strides_bytes != nullptr)
        return failure(errc::unsupported_layout, t.begin, t.name);
      if (!Scheme::narrows(t.name, t.type, t.extents())) {
        views.push_back({t.name, t.type, t.extents(), token(i, step_part::whole), {}, 0, true});
        continue;
      }
      names[i] = std::string(t.name) + ".scales";
      counts[2 * i] = Scheme::blocks(elements_of(t));
      made.first_scale_[i] = made.scales_;
      made.scales_ += static_cast<std::size_t>(counts[2 * i]);
      const auto shape = shape_of_codes<Scheme>(t.extents(), elements_of(t), counts[2 * i + 1]);
      views.push_back({t.name, Scheme::code_dtype, shape, token(i, step_part::codes), {}, 0, true});
      views.push_back({names[i], dtype::f32, {&counts[2 * i], 1}, token(i, step_part::scales), {}, 0, true});
    }
    const source_reader unread{[](const void*, std::uintptr_t, std::uint64_t, std::span<std::byte>) noexcept {
      return result<void>(failure(errc::io));
    }};
    auto image = dynamic_image::make(std::span<const tensor_view>(views), {}, unread);
    if (!image) return failure(image.error());
    made.image_.emplace(std::move(*image));
    const source_view all = made.image_->source();
    std::uint64_t before = 0;
    for (std::size_t k = 0; k < all.schema->tensor_count; ++k) {
      if (part(all, k) == step_part::scales || all.schema->tensors[k].size_bytes() == 0) continue;
      const tensor_entry& t = model.tensors[all.where[k] / 4];
      if (in_order && t.begin < before) return failure(errc::unsupported_layout, t.begin, t.name);
      before = t.begin;
    }
    return made;
  }

  /// Of a step that moves all tensors.
  const image_schema& all() const noexcept { return image_->schema(); }
  /// How many scales that has, and which is a tensor's first.
  std::size_t scales() const noexcept { return scales_; }
  std::size_t first_scale(std::size_t i) const noexcept { return first_scale_[i]; }

  /// Before a header has arrived.
  void clear() noexcept { arriving_.clear(); }
  /// Finds what a header lists: some of the tensors of all(), in its order, and of codes and scales both or none, with
  /// so many bytes together. schema_mismatch, with a name if there is one.
  result<void> arrange(const image_schema& model, std::span<const tensor_entry> listed,
                       std::uint64_t data_bytes) noexcept {
    const source_view every = image_->source();
    std::ranges::fill(comes_, static_cast<unsigned char>(0));
    std::uint64_t at = 0;
    std::size_t k = 0;
    for (const tensor_entry& t : listed) {
      while (k < every.schema->tensor_count && every.schema->tensors[k].name != t.name) ++k;
      if (k == every.schema->tensor_count || every.schema->tensors[k].type != t.type ||
          !std::ranges::equal(every.schema->tensors[k].extents(), t.extents()))
        return failure(errc::schema_mismatch, 0, t.name);
      const std::uint64_t size = every.schema->tensors[k].size_bytes();
      const step_part is = part(every, k);
      const std::size_t of = every.where[k++] / 4;
      arriving_.push_back({at, at + size, of, is});
      comes_[of] = static_cast<unsigned char>(comes_[of] | bit(is));
      at += size;
    }
    if (at != data_bytes) return failure(errc::schema_mismatch);
    for (std::size_t i = 0; i < model.tensor_count; ++i)
      if (comes_[i] == bit(step_part::codes) || comes_[i] == bit(step_part::scales))
        return failure(errc::schema_mismatch, 0, model.tensors[i].name);
    return {};
  }
  std::span<const arriving_tensor> arriving() const noexcept { return arriving_; }
  /// Whether a tensor of the model is not among them.
  bool stands_still(std::size_t i) const noexcept { return comes_[i] == 0; }

 private:
  explicit step_layout(std::size_t count) : first_scale_(count), comes_(count) { arriving_.reserve(2 * count); }
  static const std::byte* token(std::size_t i, step_part is) noexcept {
    return reinterpret_cast<const std::byte*>(4 * i + static_cast<std::uintptr_t>(is));
  }
  static step_part part(const source_view& all, std::size_t k) noexcept {
    return static_cast<step_part>(all.where[k] % 4);
  }
  static unsigned bit(step_part is) noexcept { return 1u << static_cast<unsigned>(is); }

  std::optional<dynamic_image> image_;
  std::vector<std::size_t> first_scale_;  // of each tensor of the model
  std::size_t scales_ = 0;
  std::vector<arriving_tensor> arriving_;
  std::vector<unsigned char> comes_;  // of each tensor of the model the parts that arrive
};

}  // namespace tensorpull::detail
