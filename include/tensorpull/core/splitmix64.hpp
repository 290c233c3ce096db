// splitmix64: a small generator whose values depend on its seed alone. It tells things apart and drives tests; it is no
// secret.
#pragma once

#include <cstdint>

namespace tensorpull {

/// From Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators (2014). It has one word of state, and any
/// seed is good.
struct splitmix64 {
  /// the seed, then the state
  std::uint64_t state = 0;

  /// The next number. `step`: odd; another step gives another sequence.
  constexpr std::uint64_t operator()(std::uint64_t step = 0x9e3779b97f4a7c15u) noexcept {
    std::uint64_t z = state += step;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
};

}  // namespace tensorpull
