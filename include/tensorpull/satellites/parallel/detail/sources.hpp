// The sources of the parts of an image, so that one that has given wrong bytes can be named. A source is a number
// below 8, and one bit in a set of them.
#pragma once

#include <tensorpull/satellites/parallel/chunk_ledger.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <array>
#include <bit>
#include <cstdint>

namespace tensorpull::detail {

/// The sources of one pull. If the whole is wrong and several have given something, it is begun again with each of them
/// alone, until one gives the whole right.
class sources {
 public:
  static constexpr std::uint8_t all = 0xff;  ///< none of them alone

  /// The only one that is asked; `all`: each is.
  std::uint8_t alone() const noexcept { return alone_; }
  bool is_asked(std::uint8_t source) const noexcept { return alone_ == all || alone_ == source; }
  /// Those that have given wrong bytes; of another one's bytes in the same part it cannot be told.
  std::uint8_t wrong() const noexcept { return wrong_; }
  bool is_wrong(std::uint8_t source) const noexcept { return (wrong_ & bit(source)) != 0; }

  /// The image's parts have 2^shift bytes; whoever gave the first `kept` of them is not known.
  void begin(std::uint8_t shift, std::uint64_t kept) noexcept {
    if (alone_ != all) return;  // what others gave before is still to be told
    by_ = {};
    shift_ = shift;
    note(all, 0, kept);
  }
  /// A source has given these bytes.
  void gave(std::uint8_t source, std::uint64_t begin, std::uint64_t end) noexcept {
    if (alone_ == all) note(bit(source), begin, end);
  }

  /// The whole is wrong: the one that was asked alone, or one of several that have given something. False: of those
  /// none is left to ask. `digest(begin, end)`: of what is there.
  template <class Digest>
  bool accuse(std::uint64_t bytes, Digest digest) noexcept {
    if (alone_ != all) {
      wrong_ |= bit(alone_);
      return true;
    }
    std::uint8_t gave = 0;
    for (const std::uint8_t each : by_) gave |= each;
    if (std::popcount(gave) < 2) return false;
    each_part(bytes, [&](std::size_t i, std::uint64_t begin, std::uint64_t end) { before_[i] = digest(begin, end); });
    return true;
  }
  void ask_alone(std::uint8_t source) noexcept { alone_ = source; }
  /// The whole is right, from one source alone: what was different before is from others.
  template <class Digest>
  void compare(std::uint64_t bytes, Digest digest) noexcept {
    if (alone_ == all) return;
    each_part(bytes, [&](std::size_t i, std::uint64_t begin, std::uint64_t end) {
      if (std::popcount(by_[i]) == 1 && digest(begin, end) != before_[i]) wrong_ |= by_[i];
    });
  }

 private:
  static constexpr std::uint8_t bit(std::uint8_t source) noexcept {
    return static_cast<std::uint8_t>(1u << (source % 8));
  }
  void note(std::uint8_t set, std::uint64_t begin, std::uint64_t end) noexcept {
    if (begin >= end) return;
    for (std::uint64_t i = begin >> shift_; i <= (end - 1) >> shift_; ++i) by_[static_cast<std::size_t>(i)] |= set;
  }
  template <class F>
  void each_part(std::uint64_t bytes, F f) const noexcept {
    for (std::uint64_t i = 0; i < most_parts && i << shift_ < bytes; ++i)
      f(static_cast<std::size_t>(i), i << shift_, std::min((i + 1) << shift_, bytes));
  }

  std::array<std::uint8_t, most_parts> by_{};
  std::array<std::uint64_t, most_parts> before_{};  // digests of the parts that several have given
  std::uint8_t shift_ = 0, alone_ = all, wrong_ = 0;
};

}  // namespace tensorpull::detail
