// Small tools of the benchmarks: medians over interleaved rounds, CPU time of both processes, a child process that
// serves.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace bench {

using clock = std::chrono::steady_clock;

inline double seconds_since(clock::time_point start) {
  return std::chrono::duration<double>(clock::now() - start).count();
}

/// User and system time of this process, in seconds.
inline double cpu_seconds() {
  rusage u{};
  ::getrusage(RUSAGE_SELF, &u);
  const auto s = [](timeval t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  return s(u.ru_utime) + s(u.ru_stime);
}

struct summary {
  double minimum = 0, median = 0, maximum = 0;
};
inline summary summarise(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {values.front(), values[values.size() / 2], values.back()};
}

/// What one case measured in each round.
struct series {
  std::string name;
  std::vector<double> seconds, cpu;
};

/// Runs every case once a round, so that a noisy machine hits all alike; the first round, or the first `uncounted`
/// ones, are not counted. A case returns the CPU seconds that the other process spent.
inline std::vector<series> interleave(int rounds,
                                      const std::vector<std::pair<std::string, std::function<double()>>>& cases,
                                      int uncounted = 1) {
  std::vector<series> out;
  for (const auto& c : cases) out.push_back({c.first, {}, {}});
  for (int r = 0; r < rounds + uncounted; ++r)
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const double cpu = cpu_seconds();
      const auto start = clock::now();
      const double other = cases[i].second();
      const double took = seconds_since(start);
      if (r < uncounted) continue;
      out[i].seconds.push_back(took);
      out[i].cpu.push_back(cpu_seconds() - cpu + other);
    }
  return out;
}

/// A child process that runs `serve(write_fd)` and is ended with this object, or with the process that made it. `port`
/// is what it wrote to the pipe.
class child {
 public:
  template <class Serve>
  explicit child(Serve serve) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(ends[0]);
      serve(ends[1]);
      std::_Exit(0);
    }
    ::close(ends[1]);
    pipe_ = ends[0];
  }
  child(const child&) = delete;
  child& operator=(const child&) = delete;
  ~child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::close(pipe_);
  }
  /// The next value that the child wrote.
  template <class T>
  T read() {
    T value{};
    if (::read(pipe_, &value, sizeof value) != static_cast<ssize_t>(sizeof value)) std::abort();
    return value;
  }
  /// CPU time of all the child's threads so far, in seconds.
  double cpu() const {
    unsigned long long total = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid_) + "/task")) {
      unsigned long long nanoseconds = 0;
      if (std::FILE* f = std::fopen((task.path() / "schedstat").c_str(), "r")) {
        if (std::fscanf(f, "%llu", &nanoseconds) == 1) total += nanoseconds;
        std::fclose(f);
      }
    }
    return 1e-9 * static_cast<double>(total);
  }

 private:
  pid_t pid_ = -1;
  int pipe_ = -1;
};

template <class T>
void write_value(int fd, const T& value) {
  if (::write(fd, &value, sizeof value) != static_cast<ssize_t>(sizeof value)) std::_Exit(1);
}

}  // namespace bench
