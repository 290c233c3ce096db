// One line on the terminal that is overwritten. Prints nothing if standard error is not a terminal.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include <sys/ioctl.h>
#include <unistd.h>

namespace federated {

class status_line {
 public:
  status_line() : on_terminal_{::isatty(STDERR_FILENO) == 1} {}
  status_line(const status_line&) = delete;
  status_line& operator=(const status_line&) = delete;
  ~status_line() { clear(); }

  bool on_terminal() const { return on_terminal_; }
  /// Whether it is time to draw it again: ten times a second at most.
  bool due() const {
    return on_terminal_ && (!shown_ || std::chrono::steady_clock::now() - drawn_ >= std::chrono::milliseconds{100});
  }

  /// `text` without control characters.
  void show(const std::string& text) {
    if (!on_terminal_) return;
    drawn_ = std::chrono::steady_clock::now();
    shown_ = true;
    std::fprintf(stderr, "\r\033[K%.*s", columns() - 1, text.c_str());  // a line that wraps could not be overwritten
    std::fflush(stderr);
  }

  /// Removes the line. Call it before anything else is printed.
  void clear() {
    if (!shown_) return;
    std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
    shown_ = false;
  }

  static int columns() {
    winsize size{};
    return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
  }

 private:
  bool on_terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point drawn_{};
};

/// [######....] of so many cells.
inline std::string bar_text(std::size_t cells, std::uint64_t done, std::uint64_t of) {
  const double part = of == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(of);
  const std::size_t full = std::min(cells, static_cast<std::size_t>(static_cast<double>(cells) * part));
  std::string bar(cells + 2, '.');  // filled in place, because g++ 12 warns wrongly about joined strings
  bar.front() = '[';
  bar.back() = ']';
  for (std::size_t i = 0; i < full; ++i) bar[1 + i] = '#';
  return bar;
}

}  // namespace federated
