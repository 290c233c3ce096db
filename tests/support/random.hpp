// A tiny generator for tests: splitmix64. The same seed gives the same values on every machine.
#pragma once

#include "words.hpp"

#include <tensorpull/core/splitmix64.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace test {

class generator {
 public:
  explicit generator(std::uint64_t seed) noexcept : next_{seed} {}

  std::uint64_t operator()() noexcept { return next_(); }
  /// in [0, n)
  std::uint64_t below(std::uint64_t n) noexcept { return (*this)() % n; }
  /// true: with this probability
  bool chance(double p) noexcept { return static_cast<double>((*this)() >> 11) * 0x1p-53 < p; }

  void fill(byte_span bytes) noexcept {
    for (std::byte& b : bytes) b = static_cast<std::byte>((*this)());
  }
  byte_vector bytes(std::size_t n) {
    byte_vector b(n);
    fill(b);
    return b;
  }

 private:
  tensorpull::splitmix64 next_;
};

}  // namespace test
