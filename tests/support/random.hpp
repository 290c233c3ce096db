// A tiny generator for tests: splitmix64. The same seed gives the same values on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace test {

class generator {
 public:
  explicit generator(std::uint64_t seed) noexcept : state_(seed) {}

  std::uint64_t operator()() noexcept {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// in [0, n)
  std::uint64_t below(std::uint64_t n) noexcept { return (*this)() % n; }

  void fill(std::span<std::byte> bytes) noexcept {
    for (std::byte& b : bytes) b = static_cast<std::byte>((*this)());
  }
  std::vector<std::byte> bytes(std::size_t n) {
    std::vector<std::byte> b(n);
    fill(b);
    return b;
  }

 private:
  std::uint64_t state_;
};

}  // namespace test
