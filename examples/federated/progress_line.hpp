// One line on the terminal that is written over as a round goes on; silent where standard error is no terminal.
#pragma once

#include "text.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include <sys/ioctl.h>
#include <unistd.h>

namespace federated {

class progress_line {
 public:
  progress_line() : on_terminal_{::isatty(STDERR_FILENO) == 1} {}
  progress_line(const progress_line&) = delete;
  progress_line& operator=(const progress_line&) = delete;
  ~progress_line() { clear(); }

  /// Call it as often as you like: it draws ten times a second at most.
  void show(std::uint32_t round, std::uint32_t rounds, std::uint32_t updates, std::uint32_t participants,
            std::uint64_t moved_bytes) {
    if (!on_terminal_) return;
    const auto now = std::chrono::steady_clock::now();
    if (shown_ && now - drawn_ < std::chrono::milliseconds{100}) return;
    drawn_ = now;
    shown_ = true;

    constexpr std::size_t cells = 30;
    const std::size_t full = participants == 0 ? 0 : std::min<std::size_t>(cells, cells * updates / participants);
    char bar[cells + 1];
    std::fill_n(bar, cells, '.');
    std::fill_n(bar, full, '#');
    bar[cells] = '\0';
    char line[160];
    std::snprintf(line, sizeof line, "round %u of %u [%s] %u of %u updates, %.1f MiB", round, rounds, bar, updates,
                  participants, mebibytes(moved_bytes));
    std::fprintf(stderr, "\r\033[K%.*s", columns() - 1, line);  // a line that wraps could not be written over
    std::fflush(stderr);
  }

  /// Before anything else is printed.
  void clear() {
    if (!shown_) return;
    std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
    shown_ = false;
  }

 private:
  static int columns() {
    winsize size{};
    return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
  }

  bool on_terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point drawn_{};
};

}  // namespace federated
