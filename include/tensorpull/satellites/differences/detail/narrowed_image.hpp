// The constants of the image of a small machine's difference: its tensors, its header, and where the digests are in it.
#pragma once

#include <tensorpull/core/digits.hpp>
#include <tensorpull/core/error.hpp>
#include <tensorpull/core/xxh3.hpp>
#include <tensorpull/embedded/image.hpp>
#include <tensorpull/satellites/differences/scheme/scaled_blocks.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tensorpull::detail::embedded {

inline constexpr std::string_view behind_scales = ".scales";

/// The tensors of a difference, in the order of the model's members: two for each one that is narrowed.
template <const auto& Names, class Scheme>
struct narrowed_names {
  static constexpr bool is_pair(std::size_t i) noexcept {
    const static_leaf& leaf = Names.leaves[i];
    return Scheme::narrows(Names.name(i), leaf.type, {leaf.shape, leaf.rank});
  }
  static constexpr std::uint64_t elements(std::size_t i) noexcept {
    return Names.leaves[i].bytes / (bits(Names.leaves[i].type) / 8);
  }
  static constexpr std::size_t count = [] {
    std::size_t n = Names.count;
    for (std::size_t i = 0; i < Names.count; ++i) n += is_pair(i) ? 1 : 0;
    return n;
  }();
  static constexpr std::size_t characters = [] {
    std::size_t n = 0;
    for (std::size_t i = 0; i < Names.count; ++i)
      n += Names.leaves[i].name_length + (is_pair(i) ? Names.leaves[i].name_length + behind_scales.size() : 0);
    return n;
  }();
  /// The shape of each tensor of scales.
  static constexpr auto blocks = [] {
    std::array<std::uint64_t, Names.count + 1> list{};
    for (std::size_t i = 0; i < Names.count; ++i)
      if (is_pair(i)) list[i] = Scheme::blocks(elements(i));
    return list;
  }();
  static constexpr auto names = [] {
    static_names<count, characters> made;
    std::uint32_t used = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < Names.count; ++i) {
      static_leaf leaf = Names.leaves[i];
      const bool pair = is_pair(i);
      const auto name = [&](std::string_view behind) {
        leaf.name_begin = used;
        for (const char c : Names.name(i)) made.characters[used++] = c;
        for (const char c : behind) made.characters[used++] = c;
        leaf.name_length = used - leaf.name_begin;
      };
      name({});
      if (pair) leaf.type = dtype::i8, leaf.bytes = elements(i);
      made.leaves[at++] = leaf;
      if (!pair) continue;
      name(behind_scales);
      leaf.type = dtype::f32, leaf.rank = 1, leaf.shape = &blocks[i], leaf.bytes = 4 * blocks[i];
      made.leaves[at++] = leaf;
    }
    return made;
  }();
};

/// The role of a difference's tensor for a tensor of the model.
enum class narrowed_kind : std::uint8_t {
  whole,
  codes,
  scales
};
struct narrowed_part {
  std::uint32_t end = 0;  // in the difference's data section
  std::uint32_t begin = 0;  // of the model's tensor, in the model's data section
  std::uint32_t elements = 0;  // of the model's tensor
  dtype type = dtype::u8;  // of the model's tensor
  narrowed_kind kind = narrowed_kind::whole;
};
struct narrowed_tensor {
  std::uint32_t begin = 0, bytes = 0;
  std::uint16_t name_begin = 0, name_length = 0;
  dtype type = dtype::u8;
  bool narrowed = false;
};

/// A number as text.
template <std::size_t N>
inline constexpr tensorpull::detail::decimal digits_of{N};
/// The digests are filled in as the header is read.
inline constexpr std::string_view no_digest = "0000000000000000";
template <std::size_t BlockElements>
inline constexpr metadata_list<3> narrowed_metadata{{{"tensorpull.base", no_digest},
                                                     {"tensorpull.blocks_of_8_bits", digits_of<BlockElements>.view()},
                                                     {"tensorpull.moved", no_digest}}};

template <class Model, class Scheme>
using static_narrowed_image = static_image<narrowed_names<tensor_names<Model, true>::final_names, Scheme>::names,
                                           narrowed_metadata<Scheme::block_elements>>;

/// The constants of a difference's image. Its header has zeros for both digests.
template <class Model, class Scheme>
struct narrowed_image : image_constants<static_narrowed_image<Model, Scheme>> {
 private:
  static constexpr const auto& model_names = tensor_names<Model, true>::final_names;
  using list = narrowed_names<model_names, Scheme>;
  static_assert(!has_duplicate_names<list::names>(),
                "tensorpull: a tensor of the model is called like the scales of another: NAME.scales");
  using whole = static_image<model_names>;
  using image = static_narrowed_image<Model, Scheme>;

 protected:
  using image_constants<static_narrowed_image<Model, Scheme>>::header;
  /// After a key of the metadata.
  static constexpr std::uint32_t place_of(std::string_view key) noexcept {
    for (std::size_t i = 0; i + key.size() <= header.size(); ++i) {
      std::size_t n = 0;
      while (n < key.size() && static_cast<char>(header[i + n]) == key[n]) ++n;
      if (n == key.size()) return static_cast<std::uint32_t>(i + n);
    }
    return 0;
  }
  static constexpr std::uint32_t base_at = place_of(R"("tensorpull.base":")"),
                                 moved_at = place_of(R"("tensorpull.moved":")");
  static_assert(base_at != 0 && moved_at != 0);

  /// The tensors of the difference, in image order.
  static constexpr auto parts = [] {
    std::array<narrowed_part, image::count + 1> made{};
    std::array<std::uint32_t, image::count + 1> rank{};
    for (std::size_t i = 0; i < image::count; ++i) rank[image::order.at[i]] = static_cast<std::uint32_t>(i);
    std::size_t at = 0;
    for (std::size_t k = 0; k < whole::count; ++k) {
      const tensor_entry& t = whole::placed.at[whole::rank.at[k]];
      const bool pair = list::is_pair(k);
      for (const narrowed_kind kind : {pair ? narrowed_kind::codes : narrowed_kind::whole, narrowed_kind::scales}) {
        if (!pair && kind == narrowed_kind::scales) continue;
        const std::uint32_t i = rank[at++];
        made[i] = {static_cast<std::uint32_t>(image::placed.at[i].end), static_cast<std::uint32_t>(t.begin),
                   static_cast<std::uint32_t>(list::elements(k)), t.type, kind};
      }
    }
    return made;
  }();
  /// The tensors of the model, in image order, and their names.
  static constexpr std::size_t model_count = whole::count;
  static constexpr auto tensors = [] {
    std::array<narrowed_tensor, whole::count + 1> made{};
    std::size_t used = 0;
    for (std::size_t i = 0; i < whole::count; ++i) {
      const tensor_entry& t = whole::placed.at[i];
      made[i] = {static_cast<std::uint32_t>(t.begin),
                 static_cast<std::uint32_t>(t.end - t.begin),
                 static_cast<std::uint16_t>(used),
                 static_cast<std::uint16_t>(t.name.size()),
                 t.type,
                 Scheme::narrows(t.name, t.type, t.extents())};
      used += t.name.size();
    }
    return made;
  }();
  static_assert(model_names.character_count <= 0xffff, "tensorpull: the names of the model are too long");
  static constexpr auto text = [] {
    std::array<char, model_names.character_count + 1> made{};
    std::size_t used = 0;
    for (std::size_t i = 0; i < whole::count; ++i)
      for (const char c : whole::placed.at[i].name) made[used++] = c;
    return made;
  }();

  static constexpr bool has(dtype type) noexcept {
    for (std::size_t i = 0; i < whole::count; ++i)
      if (whole::placed.at[i].type == type) return true;
    return false;
  }
  /// Of some tensor and its name.
  static constexpr bool has_short_input = [] {
    for (std::size_t i = 0; i < whole::count; ++i)
      if (tensors[i].bytes + tensors[i].name_length < lean_xxh3_64::least_bytes) return true;
    return false;
  }();
  /// with_movable() with code only for the types of this model.
  template <class F>
  static errc with_element(dtype type, F&& f) noexcept {
    if constexpr (has(dtype::f32))
      if (type == dtype::f32) return f(float{});
    if constexpr (has(dtype::f64))
      if (type == dtype::f64) return f(double{});
    if constexpr (has(dtype::f16))
      if (type == dtype::f16) return f(float16{});
    if constexpr (has(dtype::bf16))
      if (type == dtype::bf16) return f(bfloat16{});
    return errc::unsupported_dtype;
  }
};

}  // namespace tensorpull::detail::embedded
