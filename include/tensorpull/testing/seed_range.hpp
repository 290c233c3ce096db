// Which seeds a test runs.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace tensorpull::testing {

/// Which seeds to run: `count` of them from `first` on.
struct seed_range {
  std::uint64_t first = 0,  ///< the first seed
      count = 1;            ///< how many seeds
  bool trace = false;       ///< print every step of every run

  /// `count` seeds from 0, unless TENSORPULL_SIM_FIRST or TENSORPULL_SIM_SEEDS in the environment say otherwise. A
  /// single seed is traced.
  static seed_range from_environment(std::uint64_t count) noexcept {
    const auto number = [](const char* name, std::uint64_t otherwise) {
      const char* const text = std::getenv(name);
      return text != nullptr && *text != '\0' ? std::strtoull(text, nullptr, 10) : otherwise;
    };
    seed_range r{number("TENSORPULL_SIM_FIRST", 0), number("TENSORPULL_SIM_SEEDS", count), false};
    r.trace = r.count == 1;
    return r;
  }
};

}  // namespace tensorpull::testing
