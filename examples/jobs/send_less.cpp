// The main job's model over a slow line, sent in four ways: as a whole, as what has changed without loss, and as what
// has changed in 8 and in 4 bits. The line is this machine, with a limit of 20 Mbit/s. Prints bytes, seconds and
// accuracy side by side.
#include "jobs/less/job.hpp"

#include <cstdio>
#include <stdexcept>

int main(int count, char** arguments) {
  const auto chosen = sites::parse_options_or_exit(
      count, arguments, "Ten clients learn digits over a slow line, and their models travel in four ways.");
  try {
    return less::compare(chosen, {.bytes_per_second = 20'000'000 / 8}, "20 Mbit/s");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", arguments[0], e.what());
    return 1;
  }
}
