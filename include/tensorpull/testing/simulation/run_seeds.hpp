// Many runs, one for each seed. A run that fails is printed with its seed, and run again to print every step.
#pragma once

#include <tensorpull/testing/simulation/simulated_network.hpp>

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

/// Runs each seed and adds the reports up. Stops after `most_failures` runs that failed. `out`: the file to which
/// failures are printed; nullptr: none. `Net`, `Consumer`, `Model`: those of simulated_network.
template <class Net, consumer Consumer = land, simulated_model Model = guarded_tensors>
simulation_report run_seeds(const seed_range& seeds, simulation_options options = {}, std::FILE* out = stderr,
                            std::uint64_t most_failures = 3) {
  simulation_report sum;
  if (seeds.trace) options.trace = out;
  for (std::uint64_t i = 0, failures = 0; i < seeds.count && failures < most_failures; ++i) {
    const simulation_report one = simulate<Net, Consumer, Model>(seeds.first + i, options);
    sum.add(one);
    if (one.passed()) continue;
    ++failures;
    if (out == nullptr || seeds.trace) continue;
    std::fprintf(
        out,
        "simulation: seed %llu failed: %s\nEvery step (again: TENSORPULL_SIM_FIRST=%llu TENSORPULL_SIM_SEEDS=1):\n",
        static_cast<unsigned long long>(one.seed), one.first_failure, static_cast<unsigned long long>(one.seed));
    simulation_options told = options;
    told.trace = out;
    simulate<Net, Consumer, Model>(one.seed, told).print(out);
  }
  return sum;
}

}  // namespace tensorpull::testing
