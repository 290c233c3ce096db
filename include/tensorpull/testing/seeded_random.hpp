// The random numbers of a simulation: a small generator whose values depend on its seed alone.
#pragma once

#include <tensorpull/core/splitmix64.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull::testing {

/// splitmix64: the same seed gives the same values on every machine. Predictable, so not for the nonces or reference
/// IDs of a real owner.
class seeded_random {
 public:
  /// Starts the sequence of this seed.
  constexpr explicit seeded_random(std::uint64_t seed) noexcept : next_{seed} {}

  /// 64 random bits.
  constexpr std::uint64_t operator()() noexcept { return next_(); }
  /// A number in [0, n); n > 0.
  constexpr std::uint64_t below(std::uint64_t n) noexcept { return (*this)() % n; }
  /// A number in [low, high].
  constexpr std::uint64_t between(std::uint64_t low, std::uint64_t high) noexcept {
    return low + below(high - low + 1);
  }
  /// True with a probability in thousandths.
  constexpr bool chance(std::uint32_t per_thousand) noexcept { return below(1000) < per_thousand; }
  /// A separate generator for one part of a program, so that the values of other parts do not depend on how many this
  /// part draws.
  constexpr seeded_random fork() noexcept { return seeded_random((*this)()); }

  /// Random bytes.
  constexpr void fill(std::span<std::byte> bytes) noexcept {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (i % 8 == 0) word = (*this)();
      bytes[i] = static_cast<std::byte>(word >> (8 * (i % 8)));
    }
  }

 private:
  splitmix64 next_;
};

}  // namespace tensorpull::testing
