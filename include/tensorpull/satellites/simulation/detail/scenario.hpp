// The plan of one run: its faults and its size, drawn from the seed before the run begins.
#pragma once

#include <tensorpull/satellites/simulation/simulated_stream.hpp>
#include <tensorpull/satellites/simulation/simulation_options.hpp>
#include <tensorpull/testing/frame_faults.hpp>
#include <tensorpull/testing/seeded_random.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tensorpull::testing::detail {

/// A fault of a process or a connection, and its time.
struct planned_fault {
  std::uint64_t at_us;
  fault what;
  std::uint64_t who;     ///< modulo the number of recipients or connections
  std::uint64_t detail;  ///< a duration, a number of bytes, or a choice

  /// Harms a connection.
  void strike(simulated_wire& wire) const {
    simulated_pipe& pipe = wire.from(detail / 7 % 2);
    switch (what) {
      case fault::reset: return wire.reset();
      case fault::stall: return pipe.stall(std::chrono::microseconds(detail % 600'000));
      case fault::cut: return pipe.cut_after(detail % 700);
      case fault::lose: return wire.lose();
      default: return;
    }
  }
};

/// The faults of one run, and its size.
struct scenario {
  scenario(const simulation_options& o, seeded_random random) : options(o), random_(random) {
    recipients = std::min(1 + others(), o.most_recipients);
    if (o.most_faults > 0) {
      const std::uint64_t count = random_.below(o.most_faults + 1);
      for (std::uint64_t i = 0; i < count; ++i) {
        const auto what = static_cast<fault>(random_.below(fault_names.size()));
        if ((o.fault_mask >> static_cast<unsigned>(what) & 1) != 0)
          faults.push_back({random_.below(window_us), what, random_(), random_()});
      }
    }
    for (const planned_fault& f : faults) mutates |= f.what == fault::mutate;
    damages = random_.chance(400);
    healed_us = faults.empty() && !damages ? 0 : window_us + 500'000;  // the longest outage
  }

  /// The conditions of the next connection. `healed`: the last fault is over, so they are good.
  wire_conditions conditions(bool healed) {
    wire_conditions c;
    if (healed) {
      c.latency = std::chrono::microseconds(100);
      c.capacity_bytes = 8192;
      return c;
    }
    c.latency = std::chrono::microseconds(random_.below(random_.chance(200) ? 20'000 : 500));
    c.jitter = std::chrono::microseconds(random_.chance(500) ? random_.below(2'000) : 0);
    c.capacity_bytes = capacity();
    c.most_per_read = cut();
    c.most_per_write = cut();
    return c;
  }
  /// Arms faults of frames on a new connection. At most one bit of a connection is inverted, because two could hide
  /// each other if there is no digest.
  void damage(simulated_pipe& requests, simulated_pipe& replies) {
    if (!damages) return;
    if (options.frame_faults && random_.chance(500))
      for (std::uint64_t n = 1 + random_.below(3); n > 0; --n) {
        const auto kind = static_cast<frame_fault_kind>(1 + random_.below(4));
        (random_.chance(250) ? requests : replies).faults.arm({kind, random_.below(10), random_.below(5)});
      }
    // a changed source together with a damaged request for its digest could not be detected
    if (options.flips && !mutates && random_.chance(500)) {
      const bool payload = random_.chance(500);
      (!payload && random_.chance(300) ? requests : replies)
          .faults.arm(
              {payload ? frame_fault_kind::flip_payload : frame_fault_kind::flip_head, random_.below(8), random_()});
    }
  }

  static constexpr std::uint64_t window_us = 150'000;

  simulation_options options;
  std::size_t recipients = 1;
  std::vector<planned_fault> faults;
  std::uint64_t healed_us = 0;
  bool damages = false, mutates = false;

 private:
  /// Recipients besides the first: none in most runs, many in few.
  std::size_t others() {
    const std::uint64_t size = random_.below(100);
    if (size < 40) return 0;
    if (size < 88) return static_cast<std::size_t>(random_.below(4));
    return static_cast<std::size_t>(random_.below(size < 97 ? 12 : 64));
  }
  std::size_t capacity() {
    const std::uint64_t width = random_.below(10);
    if (width < 2) return 16 + static_cast<std::size_t>(random_.below(200));
    return width < 8 ? 500 + static_cast<std::size_t>(random_.below(8000)) : 16 * 1024;
  }
  std::size_t cut() {
    const std::uint64_t how = random_.below(20);
    if (how == 0) return 1 + static_cast<std::size_t>(random_.below(24));
    if (how < 6) return 20 + static_cast<std::size_t>(random_.below(300));
    return how < 10 ? 1500 : ~std::size_t{0};
  }
  seeded_random random_;
};

}  // namespace tensorpull::testing::detail
