// How far a round has come, on one line of the terminal.
#pragma once

#include "status_line.hpp"
#include "text.hpp"

#include <cstdint>

namespace federated {

class progress_line {
 public:
  /// May be called often: it draws ten times a second at most.
  void show(std::uint32_t round, std::uint32_t rounds, std::uint32_t updates, std::uint32_t participants,
            std::uint64_t moved_bytes) {
    if (!line_.due()) return;
    const std::string bar = participants == 0 ? bar_text(30, 0, 1) : bar_text(30, updates, participants);
    line_.show(formatted("round %u of %u %s %u of %u updates, %.1f MiB", round, rounds, bar.c_str(), updates,
                         participants, mebibytes(moved_bytes)));
  }

  /// Removes the line. Call it before anything else is printed.
  void clear() { line_.clear(); }

 private:
  status_line line_;
};

}  // namespace federated
