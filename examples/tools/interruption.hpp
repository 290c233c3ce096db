// Ctrl-C and SIGTERM: the first one asks the tool to finish cleanly, the second one ends it.
#pragma once

#include <csignal>

namespace tools {

inline volatile std::sig_atomic_t interrupted_by = 0;

inline void hear_signals() {
  struct sigaction action{};
  action.sa_handler = [](int signal) { interrupted_by = signal; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  action.sa_handler = SIG_IGN;
  action.sa_flags = 0;
  sigaction(SIGPIPE, &action, nullptr);
}

/// As a stop token: asks whether one came.
struct signal_heard {
  static bool stop_requested() noexcept { return interrupted_by != 0; }
};
/// The exit status that shells show for it.
inline int interrupted_status() { return 128 + interrupted_by; }

}  // namespace tools
