// Numbers that name serves. They tell serves apart; they do not authenticate.
#pragma once

#include <cstdint>

namespace tensorpull {

/// splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014) from a start and a step that nobody can guess.
struct nonce_source {
  std::uint64_t state, step;

  /// Never 0, which is no nonce.
  std::uint64_t operator()() noexcept {
    std::uint64_t z = state += step | 1;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return z != 0 ? z : 1;
  }
};

}  // namespace tensorpull
