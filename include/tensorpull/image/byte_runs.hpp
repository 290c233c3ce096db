// Equal runs of bytes, one every so many: a slice of a tensor's second or a later dimension. MPI calls that a vector.
#pragma once

#include <cstdint>

namespace tensorpull {

/// Runs of `length` bytes each, whose beginnings are `stride` bytes apart. Length 0: all bytes are one run.
struct byte_runs {
  std::uint32_t length;  ///< of each run
  std::uint32_t stride;  ///< from the first byte of one to that of the next; not less than `length`

  /// Whether there may be gaps.
  constexpr bool apart() const noexcept { return length != 0; }
  /// How far the n-th of their bytes lies behind the first.
  constexpr std::uint64_t distance(std::uint64_t n) const noexcept {
    return apart() ? n / length * stride + n % length : n;
  }
  /// How many of them lie before the one that is `distance` bytes behind the first. One in a gap counts as the first of
  /// the next run.
  constexpr std::uint64_t before(std::uint64_t distance) const noexcept {
    if (!apart()) return distance;
    const std::uint64_t within = distance % stride;
    return distance / stride * length + (within < length ? within : length);
  }
  /// How many bytes its run has from the n-th of them on.
  constexpr std::uint64_t left_in_run(std::uint64_t n) const noexcept {
    return apart() ? length - n % length : ~std::uint64_t{0};
  }
  /// As one number, as a request for a chunk has it.
  constexpr std::uint64_t word() const noexcept { return std::uint64_t{length} << 32 | stride; }
  /// The reverse of word().
  static constexpr byte_runs of_word(std::uint64_t word) noexcept {
    return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word)};
  }
};

namespace detail {

/// In place of byte_runs where nobody asks for slices.
struct one_run {
  constexpr bool apart() const noexcept { return false; }
  constexpr std::uint64_t distance(std::uint64_t n) const noexcept { return n; }
  constexpr std::uint64_t before(std::uint64_t distance) const noexcept { return distance; }
  constexpr std::uint64_t left_in_run(std::uint64_t) const noexcept { return ~std::uint64_t{0}; }
};

/// Bytes of an image: the runs from `begin` on, of which the last ends at `end`.
template <class Runs = byte_runs>
struct strided_range {
  std::uint64_t begin, end;
  [[no_unique_address]] Runs runs;

  /// Without the gaps.
  constexpr std::uint64_t size() const noexcept { return runs.before(end - begin); }
};

}  // namespace detail
}  // namespace tensorpull
