// Numbers that are the same on every machine for the same seed; the distributions and shuffles of <random> are not.
#pragma once

#include <tensorpull/core/splitmix64.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace federated {

/// The generator of the training.
class training_random {
 public:
  explicit constexpr training_random(std::uint64_t seed) : next_{seed} {}

  constexpr std::uint64_t next() { return next_(); }

  /// Uniform in [0, bound); bound must not be 0. Values below 2^64 mod bound would bias it, so they are drawn again.
  constexpr std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t biased = (0 - bound) % bound;
    for (;;)
      if (const std::uint64_t drawn = next(); drawn >= biased) return drawn % bound;
  }

  /// Uniform in [-1, 1), in steps that a float holds exactly.
  constexpr float symmetric() { return static_cast<float>(next() >> 40) * 0x1p-23f - 1.0f; }

 private:
  tensorpull::splitmix64 next_;
};

/// A seed for each purpose and number, so that no two of them draw the same sequence.
constexpr std::uint64_t derived_seed(std::uint64_t seed, std::uint64_t purpose, std::uint64_t number = 0) {
  training_random first{seed + purpose * 0xd1342543de82ef95u};
  return training_random{first.next() + number}.next();
}

/// Fisher-Yates; afterwards the first `count` elements are a uniform sample without repetition, in random order.
template <typename T>
constexpr void shuffle_front(std::span<T> items, std::size_t count, training_random& random) {
  for (std::size_t i = 0; i < count && i < items.size(); ++i)
    std::swap(items[i], items[i + static_cast<std::size_t>(random.below(items.size() - i))]);
}

template <typename T>
constexpr void shuffle(std::span<T> items, training_random& random) {
  shuffle_front(items, items.size(), random);
}

}  // namespace federated
