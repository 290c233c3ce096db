// What server and clients agree on: the model's tensors, two pipelines, and references that need no messages.
#pragma once

#include "mlp.hpp"
#include "references.hpp"

#include <tensorpull/tensorpull.hpp>
#include <tensorpull/transports/over/serial/serial.hpp>

#include <chrono>
#include <cstdio>

BOOST_HANA_ADAPT_STRUCT(microcontroller::mlp, hidden_weight, hidden_bias, output_weight, output_bias);
BOOST_HANA_ADAPT_STRUCT(microcontroller::reference_text, text);

namespace microcontroller {

using namespace std::chrono_literals;

/// The same model over both: a client has a connection, and the device has a line.
using over_tcp = tensorpull::pipeline<tensorpull::raw_tensors<mlp>, tensorpull::fixed_bytes<4096>, tensorpull::tcp>;
using over_line =
    tensorpull::pipeline<tensorpull::raw_tensors<mlp>, tensorpull::fixed_bytes<device_chunk_bytes>, tensorpull::serial>;

/// How long one end waits for the other in all.
inline constexpr auto patience = 600s;

/// Pulls from a site that may not be there yet, may be started again half-way, and may not have published yet: asks
/// again, and serves the site meanwhile.
template <class Session, class Pull>
tensorpull::result<tensorpull::receipt> ask_until_there(Session& site, Pull pull) {
  using tensorpull::errc;
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    const auto done = pull();
    const errc why = done ? errc{} : done.error().code;
    if ((why != errc::unknown_reference && why != errc::busy && why != errc::withdrawn && why != errc::ended &&
         why != errc::timed_out) ||
        std::chrono::steady_clock::now() - start > patience)
      return done;
    (void)site.serve([](const auto&) { return false; }, 20ms);
  }
}

/// Tries over the line follow each other sooner than over a network of the world.
inline tensorpull::pull_options over_the_line() {
  tensorpull::pull_options options;
  options.per_request_timeout = 10s;
  options.retry = {.retries = 60, .first_delay = 50ms, .longest_delay = 500ms};
  return options;
}

inline bool complain(const char* what, const tensorpull::error& e) {
  std::fprintf(stderr, "%s: %s\n", what, describe(e).c_str());
  return false;
}

/// Both transcripts have these words, so a script can compare them.
inline void print_right(const char* who, std::uint32_t round, const char* what, std::uint64_t digest, std::size_t right,
                        std::size_t of) {
  std::printf("%s: round %u: %s %016llx: %zu of %zu right\n", who, round, what, static_cast<unsigned long long>(digest),
              right, of);
  std::fflush(stdout);
}

}  // namespace microcontroller
