// Size arithmetic that reports overflow instead of wrapping around. It is for every number that came from outside.
#pragma once

#include <tensorpull/std/optional.hpp>

#include <cstdint>
#include <limits>

namespace tensorpull {

/// a + b, or nothing if that does not fit 64 bits.
constexpr optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) noexcept {
  if (a > std::numeric_limits<std::uint64_t>::max() - b) return {};
  return a + b;
}

/// a * b, or nothing if that does not fit 64 bits.
constexpr optional<std::uint64_t> checked_multiply(std::uint64_t a, std::uint64_t b) noexcept {
  if (b != 0 && a > std::numeric_limits<std::uint64_t>::max() / b) return {};
  return a * b;
}

/// Whether [offset, offset + length) lies within [0, size). It only subtracts, so nothing can wrap around.
constexpr bool range_within(std::uint64_t offset, std::uint64_t length, std::uint64_t size) noexcept {
  return offset <= size && length <= size - offset;
}

}  // namespace tensorpull
