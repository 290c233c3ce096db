// Many runs, one for each seed. A run that fails is printed with its seed, and run again to print every step.
#pragma once

#include <tensorpull/satellites/simulation/simulated_network.hpp>
#include <tensorpull/testing/seed_range.hpp>

namespace tensorpull::testing {

/// Runs each seed and adds the reports up. Stops after `most_failures` failed runs. `out`: the file for failures;
/// nullptr: none. `Net`, `Consumer`, `Model`: those of simulated_network.
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
