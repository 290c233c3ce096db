// The quantised difference (delta) of a model to a base, in 8 or 4 bits, as a model of its own: a safetensors file
// whose bytes are computed as they are read. It is published like any other.
//
// Each tensor `w` that the scheme narrows (F16, BF16, F32, F64) becomes an I8 tensor `w` of its shape, or in 4 bits a
// U8 tensor of one dimension with two codes in a byte, and an F32 tensor `w.scales` with a value for each block. All
// others travel whole. In a file F32 is before both, so scales arrive before their codes. A tensor that stands still,
// such as a frozen one, is left out. The metadata has sums of tensors' digests: "tensorpull.base" and
// "tensorpull.moved" of those in the file, before and after, and "tensorpull.still" of those that are left out, if
// there is one.
#pragma once

#include <tensorpull/core/byte_order.hpp>
#include <tensorpull/core/digits.hpp>
#include <tensorpull/core/tensor_view.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/satellites/differences/scheme/scaled_blocks.hpp>
#include <tensorpull/std/stop_token.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tensorpull {

namespace detail {

/// Turns whole elements of an image into the machine's.
inline void from_little_endian([[maybe_unused]] dtype type, [[maybe_unused]] std::span<std::byte> bytes) noexcept {
  if constexpr (!little_endian_machine) {
    const std::size_t width = number_bytes(type);
    for (std::size_t i = 0; width > 1 && i + width <= bytes.size(); i += width)
      std::ranges::reverse(bytes.subspan(i, width));
  }
}

/// Hashes whole elements in an image's order, so that machines of either byte order agree.
inline void hash_elements(xxh3_64& hash, [[maybe_unused]] dtype type, std::span<const std::byte> bytes) noexcept {
  if constexpr (!little_endian_machine) {
    const std::size_t width = number_bytes(type);
    std::array<std::byte, 1024> reversed;
    while (width != 0 && !bytes.empty()) {
      const std::size_t n = std::min(bytes.size(), reversed.size());
      for (std::size_t i = 0; i < n; ++i) reversed[i] = bytes[i + width - 1 - 2 * (i % width)];
      hash.update(std::span<const std::byte>(reversed).first(n));
      bytes = bytes.subspan(n);
    }
  }
  hash.update(bytes);
}
/// Empty if there is none.
inline std::string_view metadata_value(std::span<const metadata_entry> metadata, std::string_view key) noexcept {
  for (const metadata_entry& pair : metadata)
    if (pair.key == key) return pair.value;
  return {};
}
/// Of a tensor with its name. Digests are added, so that the order of a list does not matter.
inline std::uint64_t tensor_digest(std::string_view name, dtype type, std::span<const std::byte> bytes) noexcept {
  xxh3_64 hash;
  hash.update(name);
  hash_elements(hash, type, bytes);
  return hash.digest();
}

/// Whether the tensors that a step has left out, whose digests have this sum, are the sender's. `said`: by the
/// metadata, which has nothing if none was left out.
inline bool stand_still(std::string_view said, std::uint64_t sum) noexcept {
  return sum == 0 ? said.empty() : said == hex_digits(sum).view();
}

/// The bytes of a tensor that can be read in place: contiguous, in the machine's byte order, aligned. Error, with its
/// name.
inline result<std::uint64_t> plain_tensor(const tensor_view& tensor, std::size_t at) noexcept {
  const auto size = size_bytes(tensor.type, tensor.shape);
  if (!size) return failure(size.error().code, at, tensor.name);
  const unsigned width = number_bytes(tensor.type);
  const bool aligned = width == 0 || reinterpret_cast<std::uintptr_t>(tensor.data) % width == 0;
  if (tensor.indirect || tensor.swap_bytes != 0 || !aligned ||
      !is_contiguous(tensor.type, tensor.shape, tensor.strides_bytes))
    return failure(errc::unsupported_layout, at, tensor.name);
  if (tensor.data == nullptr && *size != 0) return failure(errc::invalid_argument, at, tensor.name);
  return *size;
}

/// Whether two lists have the same tensors in the same order, and all of them can be read in place.
inline result<void> same_plain_tensors(std::span<const tensor_view> model, std::span<const tensor_view> base) noexcept {
  if (model.size() != base.size()) return failure(errc::schema_mismatch);
  for (std::size_t i = 0; i < model.size(); ++i) {
    const tensor_view &w = model[i], &b = base[i];
    if (w.name != b.name || w.type != b.type || !std::ranges::equal(w.shape, b.shape))
      return failure(errc::schema_mismatch, i, w.name);
    for (const tensor_view* const t : {&w, &b})
      if (const auto plain = plain_tensor(*t, i); !plain) return failure(plain.error());
  }
  return {};
}

template <class T>
std::span<const T> elements_at(const std::byte* data, std::uint64_t first, std::size_t n) noexcept {
  return {reinterpret_cast<const T*>(data) + first, n};
}

/// The shape of the tensor that has the codes of a tensor. `bytes`: memory for it.
template <class Scheme>
std::span<const std::uint64_t> shape_of_codes(std::span<const std::uint64_t> shape, std::uint64_t elements,
                                              std::uint64_t& bytes) noexcept {
  bytes = Scheme::code_bytes(elements);
  if constexpr (Scheme::byte_elements == 1) return shape;
  else return {&bytes, 1};
}

}  // namespace detail

/// A model less a base. Borrows the tensors of both, which must not change while it is published. Movable. Memory: a
/// table (about 240 bytes and the name, twice, for each tensor). A read computes the scale of each block that it
/// touches, so chunks that are small beside a block cost a block each.
template <class Scheme = blocks_of_8_bits<>>
class narrowed_difference {
 public:
  /// Both lists have the same names, types and shapes in the same order. One pass over both. A tensor that has the
  /// base's bytes afterwards is left out. Errors, with the tensor's name: schema_mismatch (the lists differ);
  /// invalid_argument (in a tensor that differs a NaN, an infinity, a difference too large; no address);
  /// unsupported_layout (indirect, strided, swapped, not aligned); duplicate_name (a tensor is called like another's
  /// scales); cancelled (by `stop`, without a name or with one); those of dynamic_image. Throws std::bad_alloc if there
  /// is no memory for its lists.
  [[nodiscard]] static result<narrowed_difference> make(std::span<const tensor_view> model,
                                                        std::span<const tensor_view> base,
                                                        const stop_token& stop = {}) {
    if (const auto same = detail::same_plain_tensors(model, base); !same) return failure(same.error());
    auto pairs = std::make_unique<std::vector<pair>>();
    std::vector<tensor_view> views;
    std::vector<std::string> names(model.size());
    std::vector<std::uint64_t> counts(2 * model.size());  // blocks, and bytes of codes
    std::vector<std::string_view> taken;
    for (const tensor_view& w : model) taken.push_back(w.name);
    std::ranges::sort(taken);
    for (std::size_t i = 0; i < model.size(); ++i) {
      if (!Scheme::narrows(model[i].name, model[i].type, model[i].shape)) continue;
      names[i] = std::string(model[i].name) + ".scales";
      // a recipient cannot tell them apart, whether or not both move
      if (std::ranges::binary_search(taken, std::string_view(names[i])))
        return failure(errc::duplicate_name, i, std::string_view(names[i]));
    }
    std::uint64_t from = 0, to = 0, still = 0;
    for (std::size_t i = 0; i < model.size(); ++i) {
      const tensor_view &w = model[i], &b = base[i];
      const std::uint64_t size = *size_bytes(w.type, w.shape);
      const auto bytes = static_cast<std::size_t>(size);
      const std::uint64_t before = detail::tensor_digest(b.name, b.type, {b.data, bytes});
      if (bytes == 0 || w.data == b.data || std::memcmp(w.data, b.data, bytes) == 0) {
        still += before;
        continue;
      }
      const pair here{w.data, b.data, w.type, size / (bits(w.type) >= 8 ? bits(w.type) / 8 : 1)};
      if (!Scheme::narrows(w.name, w.type, w.shape)) {
        from += before;
        to += detail::tensor_digest(w.name, w.type, {w.data, bytes});
        views.push_back(w);
        continue;
      }
      const auto after = detail::with_movable(w.type, result<step>(failure(errc::unsupported_dtype)),
                                              [&](auto t) { return after_step<decltype(t)>(here, w.name, stop); });
      if (!after) return failure(after.error().code, i, w.name);
      if (!after->moves) {
        still += before;
        continue;
      }
      from += before;
      to += after->digest;
      counts[2 * i] = Scheme::blocks(here.elements);
      const auto shape = detail::shape_of_codes<Scheme>(w.shape, here.elements, counts[2 * i + 1]);
      const std::size_t token = 2 * pairs->size();
      pairs->push_back(here);
      views.push_back({w.name, Scheme::code_dtype, shape, reinterpret_cast<const std::byte*>(token), {}, 0, true});
      views.push_back(
          {names[i], dtype::f32, {&counts[2 * i], 1}, reinterpret_cast<const std::byte*>(token + 1), {}, 0, true});
    }
    const auto base_text = detail::hex_digits(from), moved_text = detail::hex_digits(to),
               still_text = detail::hex_digits(still);
    const std::string n = std::to_string(Scheme::block_elements);
    const metadata_entry said[] = {{"tensorpull.base", base_text.view()},
                                   {Scheme::key, n},
                                   {"tensorpull.moved", moved_text.view()},
                                   {"tensorpull.still", still_text.view()}};
    const auto metadata = std::span(said).first(still == 0 ? 3 : 4);
    auto image = dynamic_image::make(std::span<const tensor_view>(views), metadata, {&read, pairs.get()});
    if (!image) return failure(image.error());
    return narrowed_difference(std::move(pairs), std::move(*image));
  }

  /// The difference, to publish it. Valid while this lives.
  const dynamic_image& model() const noexcept { return image_; }

 private:
  struct pair {
    const std::byte* model;
    const std::byte* base;
    dtype type;
    std::uint64_t elements;
  };

  narrowed_difference(std::unique_ptr<std::vector<pair>> pairs, dynamic_image image) noexcept
      : pairs_(std::move(pairs)), image_(std::move(image)) {}

  static std::size_t length_of(const pair& p, std::uint64_t first) noexcept {
    return detail::smaller(p.elements - first, Scheme::block_elements);
  }

  struct step {
    std::uint64_t digest = 0;  // of the tensor afterwards
    bool moves = false;
  };
  template <class T>
  static result<step> after_step(const pair& p, std::string_view name, const stop_token& stop) noexcept {
    xxh3_64 hash;
    hash.update(name);
    bool moves = false;
    std::array<T, Scheme::block_elements> block;
    for (std::uint64_t at = 0; at < p.elements; at += Scheme::block_elements) {
      if (at % (4096 * Scheme::block_elements) == 0 && stop.stop_requested()) return failure(errc::cancelled);
      const std::size_t n = length_of(p, at);
      const std::byte* const base = p.base + at * sizeof(T);
      std::memcpy(block.data(), base, n * sizeof(T));
      const auto scale = Scheme::template advance<T>(detail::elements_at<T>(p.model, at, n), {block.data(), n});
      if (!scale) return failure(scale.error());
      moves = moves || std::memcmp(block.data(), base, n * sizeof(T)) != 0;
      detail::hash_elements(hash, p.type, std::as_bytes(std::span<const T>(block.data(), n)));
    }
    return step{hash.digest(), moves};
  }

  template <class T>
  static result<void> read_as(const pair& p, bool scales, std::uint64_t offset, std::span<std::byte> out) noexcept {
    const auto block_of = [&](std::uint64_t block) {
      const std::uint64_t first = block * Scheme::block_elements;
      const std::size_t n = length_of(p, first);
      return Scheme::template scale<T>(detail::elements_at<T>(p.model, first, n),
                                       detail::elements_at<T>(p.base, first, n));
    };
    while (!out.empty()) {
      const std::uint64_t element = offset * Scheme::byte_elements;  // of codes
      const auto scale = block_of(scales ? offset / 4 : element / Scheme::block_elements);
      if (!scale) return failure(scale.error());
      std::size_t n = 0;
      if (scales) {
        const auto number = std::bit_cast<std::uint32_t>(*scale);
        for (std::uint64_t byte = offset % 4; byte < 4 && n < out.size(); ++byte)
          out[n++] = static_cast<std::byte>(number >> 8 * byte & 255);
      } else {
        // not across the end of a block, whose scale is another; the last byte may have one element alone
        n = detail::smaller((Scheme::block_elements - element % Scheme::block_elements) / Scheme::byte_elements,
                            out.size());
        const std::size_t elements = detail::smaller(p.elements - element, n * Scheme::byte_elements);
        Scheme::template narrow<T>(detail::elements_at<T>(p.model, element, elements),
                                   detail::elements_at<T>(p.base, element, elements), *scale,
                                   {reinterpret_cast<typename Scheme::code_type*>(out.data()), n});
      }
      offset += n;
      out = out.subspan(n);
    }
    return {};
  }

  static result<void> read(const void* context, std::uintptr_t token, std::uint64_t offset,
                           std::span<std::byte> out) noexcept {
    const pair& p = (*static_cast<const std::vector<pair>*>(context))[token / 2];
    return detail::with_movable(p.type, result<void>(failure(errc::unsupported_dtype)),
                                [&](auto t) { return read_as<decltype(t)>(p, token % 2 != 0, offset, out); });
  }

  std::unique_ptr<std::vector<pair>> pairs_;
  dynamic_image image_;
};

/// Moves `base` in place by a narrowed difference that has landed in memory and was checked. Everything is verified
/// before the first byte changes: names, types, shapes, the digest of the base, each scale. Tensors that the difference
/// does not have stand still. Cost: three passes over the model. Throws std::bad_alloc if there is no memory for two
/// tables of the tensors. Read the metadata from the schema that landed.
/// Errors that leave `base` as it was: missing_field (no metadata of the scheme, or of another N), schema_mismatch,
/// value_out_of_range (a scale that is NaN, infinite, negative or subnormal), both with the name; stale_version
/// (another base). digest_mismatch: all has moved, and it is not what the owner has; `base` is then useless.
template <class Scheme = blocks_of_8_bits<>>
[[nodiscard]] result<void> move_by(std::span<const mutable_tensor_view> base, std::span<const tensor_view> narrowed,
                                   std::span<const metadata_entry> metadata) {
  const auto said = [&](std::string_view key) { return detail::metadata_value(metadata, key); };
  std::vector<const tensor_view*> by_name;
  for (const tensor_view& t : narrowed) by_name.push_back(&t);
  constexpr auto name_of = [](const tensor_view* t) { return t->name; };
  std::ranges::sort(by_name, {}, name_of);
  const auto find = [&](std::string_view name) -> const tensor_view* {
    const auto at = std::ranges::lower_bound(by_name, name, {}, name_of);
    return at != by_name.end() && (*at)->name == name ? *at : nullptr;
  };
  struct found {
    const tensor_view* codes = nullptr;  // or the whole tensor; null: it stands still
    const tensor_view* scales = nullptr;
  };
  std::vector<found> comes(base.size());
  const auto sum_of = [&](bool still) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < base.size(); ++i)
      if (const mutable_tensor_view& b = base[i]; (comes[i].codes == nullptr) == still)
        sum += detail::tensor_digest(b.name, b.type, {b.data, static_cast<std::size_t>(*size_bytes(b.type, b.shape))});
    return sum;
  };
  if (said(Scheme::key) != std::to_string(Scheme::block_elements)) return failure(errc::missing_field, 0, Scheme::key);
  std::size_t expected = 0;
  std::string behind;
  for (std::size_t i = 0; i < base.size(); ++i) {
    const mutable_tensor_view& b = base[i];
    const auto size = detail::plain_tensor(b, i);
    if (!size) return failure(size.error());
    const bool narrow = Scheme::narrows(b.name, b.type, b.shape);
    const tensor_view* const w = find(b.name);
    if (w == nullptr) continue;  // and if its scales are there, there is one too many
    expected += narrow ? 2 : 1;
    const std::uint64_t elements = narrow ? *size / (bits(b.type) / 8) : 0;
    std::uint64_t bytes = 0;
    const auto shape = narrow ? detail::shape_of_codes<Scheme>(b.shape, elements, bytes) : b.shape;
    if (w->type != (narrow ? Scheme::code_dtype : b.type) ||
        !std::equal(w->shape.begin(), w->shape.end(), shape.begin(), shape.end()) || !detail::plain_tensor(*w, i))
      return failure(errc::schema_mismatch, i, b.name);
    comes[i].codes = w;
    if (!narrow) continue;
    const tensor_view* const s = comes[i].scales = find(behind.assign(b.name).append(".scales"));
    const std::uint64_t blocks = Scheme::blocks(elements);
    if (s == nullptr || s->type != dtype::f32 || s->shape.size() != 1 || s->shape[0] != blocks ||
        !detail::plain_tensor(*s, i))
      return failure(errc::schema_mismatch, i, b.name);
    for (const float scale : detail::elements_at<float>(s->data, 0, static_cast<std::size_t>(blocks)))
      if (!is_scale(scale)) return failure(errc::value_out_of_range, i, s->name);
  }
  if (expected != narrowed.size()) return failure(errc::schema_mismatch);
  if (said("tensorpull.base") != detail::hex_digits(sum_of(false)).view() ||
      !detail::stand_still(said("tensorpull.still"), sum_of(true)))
    return failure(errc::stale_version);
  for (std::size_t i = 0; i < base.size(); ++i) {
    const mutable_tensor_view& b = base[i];
    const tensor_view* const w = comes[i].codes;
    const auto bytes = static_cast<std::size_t>(*size_bytes(b.type, b.shape));
    if (w == nullptr || bytes == 0) continue;
    if (!Scheme::narrows(b.name, b.type, b.shape)) {
      std::memcpy(b.data, w->data, bytes);
      continue;
    }
    const tensor_view* const s = comes[i].scales;
    (void)detail::with_movable(b.type, 0, [&](auto t) {
      using T = decltype(t);
      const std::size_t elements = bytes / sizeof(T);
      const auto scales = detail::elements_at<float>(s->data, 0, static_cast<std::size_t>(s->shape[0]));
      for (std::size_t at = 0; at < elements; at += Scheme::block_elements) {
        const std::size_t n = detail::smaller(elements - at, Scheme::block_elements);
        Scheme::template move<T>(
            {reinterpret_cast<T*>(b.data) + at, n}, scales[at / Scheme::block_elements],
            detail::elements_at<typename Scheme::code_type>(w->data, at / Scheme::byte_elements,
                                                            static_cast<std::size_t>(Scheme::code_bytes(n))));
      }
      return 0;
    });
  }
  if (said("tensorpull.moved") != detail::hex_digits(sum_of(false)).view()) return failure(errc::digest_mismatch);
  return {};
}

}  // namespace tensorpull
