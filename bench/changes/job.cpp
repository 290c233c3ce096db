// The main job's model over a line with delay, sent as a whole, as what has changed, and as that in 8 and 4 bits.
// Arguments: ms of a round trip, Mbit/s, rounds, a file of digits (none: made-up ones). Prints a table. Without the
// right to make network namespaces it says so, and its status is 0.
#include "../wan/line.hpp"

#include "jobs/less/job.hpp"

#include <cerrno>

int main(int count, char** arguments) {
  if (count < 4) {
    std::fprintf(stderr, "usage: %s MS MBIT ROUNDS [DIGITS]\n", arguments[0]);
    return 2;
  }
  const double ms = std::atof(arguments[1]), mbit = std::atof(arguments[2]);
  sites::options chosen;
  chosen.rounds = static_cast<std::uint32_t>(std::atoi(arguments[3]));
  if (count > 4) chosen.data = arguments[4];
  const bench::line line({.round_trip = ms / 1e3, .bytes_per_second = mbit * 1e6 / 8});
  if (line.failed() != nullptr) {
    std::printf("The job over a line is left out: it needs root and network namespaces, and %s cannot be had (%s).\n",
                line.failed(), std::strerror(errno));
    return 0;
  }
  char over[64];
  std::snprintf(over, sizeof over, "%g Mbit/s, %g ms", mbit, ms);
  try {
    return less::compare(chosen,
                         {.server = std::string(bench::line::far_address) + ":0",
                          .clients = std::string(bench::line::near_address) + ":0",
                          .enter_server = [&] { line.far().enter(); },
                          .enter_clients = [&] { line.near().enter(); }},
                         over);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s: %s\n", arguments[0], e.what());
    return 1;
  }
}
