// Child processes, one for each site.
#pragma once

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <exception>
#include <utility>
#include <vector>

namespace sites {

/// The destructor ends the children, so that none outlives the program. Start them before the first thread.
class processes {
 public:
  processes() = default;
  processes(const processes&) = delete;
  ~processes() {
    for (const pid_t child : children_) ::kill(child, SIGTERM);
    (void)wait();
  }

  /// Runs `work`, which returns an exit status, in a process of its own.
  template <class Work>
  void start(Work work) {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      int status = 1;
      try {
        status = work();
      } catch (const std::exception& failed) {
        std::fprintf(stderr, "%s\n", failed.what());
      }
      std::fflush(nullptr);
      ::_exit(status);
    }
    if (child < 0) std::perror("fork");
    else children_.push_back(child);
  }
  /// Whether one of them has ended already.
  bool one_ended() {
    siginfo_t ended{};
    for (const pid_t child : children_)
      if (::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == child)
        return true;
    return false;
  }
  /// Waits for all of them. Whether all ended with 0.
  bool wait() {
    bool well = true;
    for (const pid_t child : std::exchange(children_, {})) {
      int status = 0;
      well = ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0 && well;
    }
    return well;
  }

 private:
  std::vector<pid_t> children_;
};

}  // namespace sites
