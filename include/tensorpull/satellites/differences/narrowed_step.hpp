// A quantised step (int8 or int4 model update) that its owner has taken too, for recipients that have its base.
#pragma once

#include <tensorpull/image/read_range.hpp>
#include <tensorpull/satellites/differences/narrowed_difference.hpp>

#include <algorithm>
#include <concepts>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace tensorpull {

/// A scheme that narrows a difference: blocks_of_8_bits<>, or blocks_of_4_bits<>.
template <class S>
concept narrowing_scheme = requires(std::uint64_t n) {
  { S::blocks(n) } -> std::same_as<std::uint64_t>;
  { S::code_bytes(n) } -> std::same_as<std::uint64_t>;
  { S::narrows({}, dtype::f32, {}) } -> std::same_as<bool>;
  S::block_elements;
};

namespace detail {

/// A tensor that begins in memory before another has ended; null: none. Requires sizes that size_bytes() accepted.
inline const mutable_tensor_view* sharing_memory(std::vector<const mutable_tensor_view*> tensors) {
  const auto begin = [](const mutable_tensor_view* t) { return reinterpret_cast<std::uintptr_t>(t->data); };
  std::ranges::sort(tensors, {}, begin);
  std::uintptr_t end = 0;
  for (const mutable_tensor_view* const t : tensors) {
    const auto bytes = static_cast<std::uintptr_t>(*size_bytes(t->type, t->shape));
    if (bytes == 0) continue;
    if (begin(t) < end) return t;
    end = begin(t) + bytes;
  }
  return nullptr;
}

}  // namespace detail

/// A narrowed difference that was taken: its codes are kept (0.254 of an F32 model in 8 bits, 0.129 in 4), and the base
/// has moved by them, as every recipient's does. It outlives the model and the base. Movable.
template <narrowing_scheme Scheme = blocks_of_8_bits<>>
class narrowed_step {
 public:
  /// Moves `base` towards `model` by a step. Both lists have the same names, types and shapes in the same order, in
  /// plain memory. Errors, with the tensor's name: those of narrowed_difference; unsupported_layout: a tensor of `base`
  /// shares memory with another and would move twice; out_of_memory; cancelled by `stop`. `base` is then as it was.
  /// Throws std::bad_alloc as narrowed_difference. Cost: six passes over the base and four over the model, on this
  /// thread.
  [[nodiscard]] static result<narrowed_step> make(std::span<const tensor_view> model,
                                                  std::span<const mutable_tensor_view> base,
                                                  const stop_token& stop = {}) {
    const std::vector<tensor_view> before(base.begin(), base.end());
    const auto difference = narrowed_difference<Scheme>::make(model, before, stop);
    if (!difference) return failure(difference.error());
    std::vector<const mutable_tensor_view*> moves;
    for (const mutable_tensor_view& t : base) moves.push_back(&t);
    if (const mutable_tensor_view* const shared = detail::sharing_memory(std::move(moves)))
      return failure(errc::unsupported_layout, 0, shared->name);
    const source_view from = difference->model().source();
    const image_schema& schema = *from.schema;
    const auto bytes = static_cast<std::size_t>(schema.data_bytes());
    std::unique_ptr<std::byte[]> codes(new (std::nothrow) std::byte[bytes]);
    if (codes == nullptr) return failure(errc::out_of_memory);
    constexpr std::size_t slice = 1 << 20;
    for (std::size_t at = 0; at < bytes; at += slice) {
      if (stop.stop_requested()) return failure(errc::cancelled);
      const std::span<std::byte> out(codes.get() + at, std::min(slice, bytes - at));
      if (const auto read = detail::read_range(from, schema.header_bytes + at, out); !read)
        return failure(read.error());
    }
    std::vector<tensor_view> views;
    for (const tensor_entry& t : schema.entries()) {
      const std::span<std::byte> one(codes.get() + t.begin, static_cast<std::size_t>(t.size_bytes()));
      detail::from_little_endian(t.type, one);
      views.push_back({t.name, t.type, t.extents(), one.data()});
    }
    auto image = dynamic_image::make(std::span<const tensor_view>(views), schema.pairs());
    if (!image) return failure(image.error());
    if (const auto moved = move_by<Scheme>(base, views, schema.pairs()); !moved) return failure(moved.error());
    return narrowed_step(std::move(codes), std::move(*image));
  }

  /// The step, to publish it: a safetensors file, as of narrowed_difference. Valid while this object lives, also after
  /// a move.
  source_view image() const noexcept { return image_.source(); }

 private:
  narrowed_step(std::unique_ptr<std::byte[]> codes, dynamic_image image) noexcept
      : codes_(std::move(codes)), image_(std::move(image)) {}

  std::unique_ptr<std::byte[]> codes_;
  dynamic_image image_;
};

}  // namespace tensorpull
