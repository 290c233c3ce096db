// Where every choice of a simulation comes from: a small generator whose values depend on its seed and on nothing else.
#pragma once

#include <tensorpull/core/splitmix64.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull::testing {

/// splitmix64: the same seed gives the same values on every machine. Not for nonces or reference IDs of a real owner.
class seeded_random {
 public:
  constexpr explicit seeded_random(std::uint64_t seed) noexcept : next_{seed} {}

  constexpr std::uint64_t operator()() noexcept { return next_(); }
  /// In [0, n), n > 0.
  constexpr std::uint64_t below(std::uint64_t n) noexcept { return (*this)() % n; }
  /// In [low, high].
  constexpr std::uint64_t between(std::uint64_t low, std::uint64_t high) noexcept { return low + below(high - low + 1); }
  constexpr bool chance(std::uint32_t per_thousand) noexcept { return below(1000) < per_thousand; }
  /// A generator of its own, so that one part that draws more or less leaves the others' values as they were.
  constexpr seeded_random fork() noexcept { return seeded_random((*this)()); }

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
