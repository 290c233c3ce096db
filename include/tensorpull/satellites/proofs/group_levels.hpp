// The groups of an image by which it is proved, at each level of its tree, and the names under which an owner publishes
// their values.
#pragma once

#include <cstdint>
#include <string_view>

namespace tensorpull {

/// A group is 2^level bytes of an image, the last one maybe fewer. Any level is a row of one tree, so owner and
/// recipient need not agree on one.
inline constexpr unsigned least_group_level = 16;
inline constexpr unsigned most_group_level = 62;  ///< the coarsest

/// How many groups an image has; at least one.
constexpr std::uint64_t groups_of(std::uint64_t image_bytes, unsigned level) noexcept {
  const std::uint64_t group = std::uint64_t{1} << level;
  return image_bytes == 0 ? 1 : (image_bytes - 1) / group + 1;
}
/// The name of the tensor with a level's values in the image that is published beside a model.
class level_name {
 public:
  /// Of level 0 to 99.
  explicit constexpr level_name(unsigned level) noexcept
      : text_{'b',
              'l',
              'a',
              'k',
              'e',
              '3',
              '.',
              static_cast<char>('0' + level / 10),
              static_cast<char>('0' + level % 10)} {}
  /// Valid as long as this object.
  constexpr std::string_view view() const noexcept { return {text_, sizeof text_}; }

 private:
  char text_[9];
};

}  // namespace tensorpull
