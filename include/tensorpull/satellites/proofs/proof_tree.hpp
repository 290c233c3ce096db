// The tree of BLAKE3 over an image: its root, which is what `b3sum` prints for the image as a file, and the values of
// its groups (an outboard, as Bao names it), which an owner publishes beside the model and a recipient checks by the
// root.
#pragma once

#include <tensorpull/core/derived_id.hpp>
#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/integrity/range_digest.hpp>
#include <tensorpull/satellites/proofs/blake3_lanes.hpp>
#include <tensorpull/satellites/proofs/group_levels.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tensorpull {

/// The finest level whose values take at most `bytes`.
constexpr unsigned level_within(std::uint64_t image_bytes, std::uint64_t bytes) noexcept {
  unsigned level = least_group_level;
  while (level < most_group_level && groups_of(image_bytes, level) > bytes / sizeof(blake3_value)) ++level;
  return level;
}

/// The ID under which the tree of a model can be published (derived_id), so that all owners of the model have its tree
/// under one reference.
constexpr ref_id proof_tree_id(const reference& model) noexcept { return derived_id("tpproof", model, 0); }

namespace detail {
/// The state of a group's hash: 32 bytes for each of the levels between a chunk and the largest group.
template <class Chunks = blake3::by_lanes>
using group_hash = basic_blake3<Chunks, most_group_level - 10>;
}  // namespace detail

/// An owner's tree. Movable. 64 bytes for each 64 KiB of the image: one thousandth.
class proof_tree {
 public:
  /// Cost: a pass over the image, at the speed of the hash. `stop` is asked for each group. Errors: cancelled;
  /// out_of_memory; io if a source_reader failed.
  static result<proof_tree> make(const source_view& image, const stop_token& stop = {}) noexcept {
    try {
      proof_tree made;
      made.image_bytes_ = image.schema->image_bytes;
      const auto groups = static_cast<std::size_t>(groups_of(made.image_bytes_, least_group_level));
      made.values_.reserve(2 * groups + most_group_level);
      constexpr std::uint64_t group = std::uint64_t{1} << least_group_level;
      for (std::size_t i = 0; i < groups; ++i) {
        if (stop.stop_requested()) return failure(errc::cancelled, i * group);
        const std::uint64_t at = i * group;
        detail::group_hash<> hash(at / detail::blake3::chunk_bytes);
        if (const auto read = hash_range(hash, image, at, std::min(group, made.image_bytes_ - at)); !read)
          return failure(read.error());
        made.values_.push_back(groups == 1 ? hash.value() : hash.chaining_value());
      }
      made.root_ = detail::blake3::root_over(made.values_);
      if (groups > 1) {
        if (const auto named = made.name_levels(groups); !named) return failure(named.error());
      }
      return made;
    } catch (const std::bad_alloc&) {
      return failure(errc::out_of_memory);
    }
  }

  /// The digest of the image as a file.
  const blake3_value& root() const noexcept { return root_; }
  std::uint64_t image_bytes() const noexcept { return image_bytes_; }  ///< its length, header included
  /// Whether the root alone proves the image, which is no longer than the least group. Nothing is published then.
  bool is_root_alone() const noexcept { return !image_; }
  /// The values of all levels as an image, to be published beside the model (publish_options::beside): a tensor of
  /// bytes for each level, `blake3.16` and so on, one row of 32 bytes a group. Requires !is_root_alone(). Valid as long
  /// as this object, also after a move.
  const dynamic_image& image() const noexcept { return *image_; }

 private:
  proof_tree() = default;

  /// Appends the levels above the first, up to the one of two values, and makes an image of them.
  result<void> name_levels(std::size_t groups) {
    std::vector<level_name> names;
    std::vector<std::array<std::uint64_t, 2>> shapes;
    names.reserve(most_group_level);
    shapes.reserve(most_group_level);
    std::vector<std::size_t> begins;
    std::size_t begin = 0;
    for (unsigned level = least_group_level; groups > 1; ++level) {
      begins.push_back(begin);
      names.emplace_back(level);
      shapes.push_back({groups, sizeof(blake3_value)});
      // a value without a neighbour is that of the node above, too
      for (std::size_t i = 0; i < groups; i += 2)
        values_.push_back(i + 1 == groups ? values_[begin + i]
                                          : detail::blake3::bytes_of(detail::blake3::join(
                                                detail::blake3::words_of(values_[begin + i]),
                                                detail::blake3::words_of(values_[begin + i + 1]))));
      begin += groups;
      groups = (groups + 1) / 2;
    }
    std::vector<tensor_view> views;
    for (std::size_t i = 0; i < begins.size(); ++i)
      views.push_back({names[i].view(), dtype::u8, shapes[i], values_[begins[i]].data()});
    auto made = dynamic_image::make(std::span<const tensor_view>(views));
    if (!made) return failure(made.error());
    image_ = std::move(*made);
    return {};
  }

  std::vector<blake3_value> values_;
  std::optional<dynamic_image> image_;
  blake3_value root_{};
  std::uint64_t image_bytes_ = 0;
};

/// A recipient's knowledge of an image before it arrives: the values of its groups, proved by a root. Movable.
class proof {
 public:
  /// `values`: those of the groups of `level`, in order, as somebody sent them; of an image of one group they may be
  /// left out. Errors: digest_mismatch: they are not those of an image of this root and length; invalid_argument: the
  /// level. Cost: a compression for each.
  static result<proof> make(const blake3_value& root, std::uint64_t image_bytes, unsigned level,
                            std::vector<blake3_value> values) noexcept {
    if (level < least_group_level || level > most_group_level) return failure(errc::invalid_argument, level);
    const std::uint64_t groups = groups_of(image_bytes, level);
    if (groups == 1 && values.empty()) {
      try {
        values.push_back(root);
      } catch (const std::bad_alloc&) {
        return failure(errc::out_of_memory);
      }
    }
    if (values.size() != groups || detail::blake3::root_over(values) != root)
      return failure(errc::digest_mismatch, values.size());
    return proof(std::move(values), image_bytes, level);
  }

  std::uint64_t image_bytes() const noexcept { return image_bytes_; }  ///< its length, header included
  std::uint64_t group_bytes() const noexcept { return std::uint64_t{1} << level_; }  ///< of each group but the last
  std::uint64_t groups() const noexcept { return values_.size(); }  ///< how many; at least one
  /// Where the group with this byte ends.
  std::uint64_t end_of_group(std::uint64_t offset) const noexcept {
    const std::uint64_t begin = offset - offset % group_bytes();
    return begin + std::min(group_bytes(), image_bytes_ - begin);
  }
  /// The hash of group i, of which it has taken nothing yet.
  template <class Chunks = detail::blake3::by_lanes>
  detail::group_hash<Chunks> hash_of(std::uint64_t i) const noexcept {
    return detail::group_hash<Chunks>((i << level_) / detail::blake3::chunk_bytes);
  }
  /// Whether `hash` has taken the bytes of group i, and these are the image's.
  template <class Hash>
  bool holds(std::uint64_t i, const Hash& hash) const noexcept {
    return (values_.size() == 1 ? hash.value() : hash.chaining_value()) == values_[static_cast<std::size_t>(i)];
  }

 private:
  proof(std::vector<blake3_value> values, std::uint64_t image_bytes, unsigned level) noexcept
      : values_(std::move(values)), image_bytes_(image_bytes), level_(level) {}

  std::vector<blake3_value> values_;
  std::uint64_t image_bytes_ = 0;
  unsigned level_ = least_group_level;
};

}  // namespace tensorpull
