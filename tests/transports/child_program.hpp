// This program of tests as its own child: it is started again with "--as-child WHAT", and then owns a model over its
// standard input and output.
#pragma once

#include "network.hpp"

#include <tensorpull/transports/over/pipe/pipe.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace test {

using over_child = raw_net<mlp, tp::child_process>;
using over_stdio = raw_net<mlp, tp::standard_streams>;

inline constexpr tp::ref_id child_ref{0x5d1f, 0x0c};
inline constexpr std::uint64_t child_seed = 77;

/// The command that starts it. `what`: "serve": until its input ends; "die N": it kills itself when N bytes were sent;
/// "exit N": it ends with that status when a chunk was sent; "withdraw N": it withdraws the model when N bytes were
/// sent; "claim N": it says that the model is version N.
inline std::string child_command(const std::string& what) { return "/proc/self/exe --as-child " + what; }

inline int be_child(std::string_view what, long number) {
  const auto model = random_model<mlp>(child_seed);
  auto parent = over_stdio::session::connect("-", {.retry = {.retries = 0}});
  std::printf("this would be garbage between frames\n");
  std::fflush(stdout);
  if (!parent) return 90;
  const std::uint64_t claimed = what == "claim" ? static_cast<std::uint64_t>(number) : 0;
  const auto ref = parent->add_tensors(*model, {.id = child_ref, .version = claimed});
  if (!ref) return 91;
  auto ended = parent->serve(
      [&](const auto& here) {
        const std::uint64_t sent = here.status_of(*ref)->bytes_sent;
        if (what == "die" && sent >= static_cast<std::uint64_t>(number)) ::raise(SIGKILL);
        if (what == "exit" && sent > 0) ::_exit(static_cast<int>(number));
        return what == "withdraw" && sent >= static_cast<std::uint64_t>(number);
      },
      60s);
  if (ended && parent->withdraw(*ref, 7)) ended = parent->serve([](const auto&) { return false; }, 60s);
  return !ended && ended.error().code == errc::connection_lost ? 0 : 92;
}

[[gnu::constructor]] inline void start_as_child(int count, char** arguments) {
  if (count > 2 && std::string_view(arguments[1]) == "--as-child")
    ::_exit(be_child(arguments[2], count > 3 ? std::atol(arguments[3]) : 0));
}

}  // namespace test
