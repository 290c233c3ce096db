// A small machine pulls the values of a model's groups from the model's owner, before the model: then a lie is found
// where its group ends.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/embedded/image.hpp>
#include <tensorpull/embedded/landing.hpp>
#include <tensorpull/image/static.hpp>
#include <tensorpull/satellites/proofs/blake3.hpp>
#include <tensorpull/satellites/proofs/group_levels.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tensorpull {

namespace detail::embedded {
/// The tensors that an owner publishes beside a model whose image has so many bytes (proof_tree).
template <std::uint32_t ImageBytes>
struct tree_tensors {
  static constexpr unsigned levels = [] {
    unsigned n = 0;
    while (groups_of(ImageBytes, least_group_level + n) > 1) ++n;
    return n;
  }();
  static constexpr auto shapes = [] {
    std::array<std::array<std::uint64_t, 2>, levels> all{};
    for (unsigned i = 0; i < levels; ++i) all[i] = {groups_of(ImageBytes, least_group_level + i), sizeof(blake3_value)};
    return all;
  }();
  static constexpr auto names = [] {
    constexpr auto length = static_cast<std::uint32_t>(level_name(0).view().size());
    static_names<levels, levels * length> all{};
    for (std::uint32_t i = 0; i < levels; ++i) {
      const level_name name(least_group_level + i);
      for (std::uint32_t k = 0; k < length; ++k) all.characters[i * length + k] = name.view()[k];
      all.leaves[i] = {i * length, length, dtype::u8, 2, shapes[i].data(), shapes[i][0] * shapes[i][1]};
    }
    return all;
  }();
};
}  // namespace detail::embedded

/// The image of the tree of a model whose image has so many bytes, as constants.
template <std::uint32_t ImageBytes>
struct embedded_tree_image
    : detail::embedded::image_constants<detail::static_image<detail::embedded::tree_tensors<ImageBytes>::names>> {};

/// A landing for the tree of a model, of which the values of one level are kept: `Image` is the model's, a group has
/// 2^Level bytes. They are the owner's word, and no proof before proved_landing::is_proof() has compared them with a
/// root.
template <class Image, unsigned Level = least_group_level>
class tree_landing {
  static_assert(Level >= least_group_level && groups_of(Image::image_bytes, Level) > 1,
                "tensorpull: an owner publishes the values of groups of 2^16 bytes and more, if an image has several");

 public:
  using image = embedded_tree_image<Image::image_bytes>;  ///< what lands
  using values = std::array<blake3_value, groups_of(Image::image_bytes, Level)>;  ///< what is kept

  /// Borrows them.
  explicit tree_landing(values& to) noexcept : to_(to) {}

  /// Cannot fail.
  result<void> write(std::uint32_t at, std::span<const std::byte> bytes) noexcept {
    const auto end = std::min(static_cast<std::uint32_t>(at + bytes.size()), begin_ + std::uint32_t{sizeof(values)});
    const auto begin = std::max(at, begin_);
    if (begin < end)
      std::memcpy(std::as_writable_bytes(std::span(to_)).data() + (begin - begin_), bytes.data() + (begin - at),
                  end - begin);
    return {};
  }
  /// Always fails: not all that has landed is kept.
  result<void> read(std::uint32_t at, std::span<std::byte>) noexcept { return failure(errc::unreadable, at); }

 private:
  static constexpr auto begin_ = static_cast<std::uint32_t>(image::schema.tensors[Level - least_group_level].begin);

  values& to_;
};

}  // namespace tensorpull
