// A byte stream in virtual time. Two ends share a wire, which is both directions of one connection. Waiting moves the
// clock.
#pragma once

#include <tensorpull/core/detail/replace.hpp>
#include <tensorpull/satellites/simulation/simulated_pipe.hpp>

#include <array>
#include <memory>
#include <optional>
#include <utility>

namespace tensorpull::testing {

/// Both directions of one connection: pipe i carries what side i writes.
class simulated_wire {
 public:
  /// Borrows the clock. `random` decides jitter and splits.
  simulated_wire(virtual_clock& clock, const wire_conditions& c, seeded_random random)
      : clock_(clock), pipes_{simulated_pipe(clock, c, random.fork()), simulated_pipe(clock, c, random.fork())} {}

  /// The clock of the wire.
  virtual_clock& clock() noexcept { return clock_; }
  /// The pipe that `side` (0 or 1) writes to.
  simulated_pipe& from(std::size_t side) noexcept { return pipes_[side]; }
  /// The pipe that `side` (0 or 1) reads from.
  simulated_pipe& to(std::size_t side) noexcept { return pipes_[1 - side]; }

  /// Gives both ends an error now.
  void reset() noexcept {
    pipes_[0].reset();
    pipes_[1].reset();
  }
  /// Loses everything in both directions from now on. Neither end is told.
  void lose() noexcept {
    pipes_[0].lose();
    pipes_[1].lose();
  }
  /// Closes the end `side`; the other end gets what was written, then the end.
  void close(std::size_t side) noexcept {
    from(side).writer_closed();
    to(side).reader_closed();
  }

 private:
  virtual_clock& clock_;
  std::array<simulated_pipe, 2> pipes_;
};

/// One end of a wire, a byte_stream. Shares the wire with the other end; the destructor closes this end.
class simulated_stream {
 public:
  /// The end `side` (0 or 1) of a wire.
  simulated_stream(std::shared_ptr<simulated_wire> wire, std::size_t side) noexcept
      : wire_(std::move(wire)), side_(side) {}
  simulated_stream(simulated_stream&&) noexcept = default;
  simulated_stream& operator=(simulated_stream&& other) noexcept {
    return tensorpull::detail::replace(*this, std::move(other));
  }
  ~simulated_stream() {
    if (wire_) wire_->close(side_);
  }

  /// Reads what has arrived.
  io_result read_some(scatter_list spans) noexcept { return wire_->to(side_).read(spans); }
  /// Writes what there is room for.
  io_result write_some(gather_list spans) noexcept { return wire_->from(side_).write(spans); }

  /// Moves the clock until a direction is ready, or by `timeout`. Nothing else happens meanwhile.
  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    virtual_clock& clock = wire_->clock();
    const std::uint64_t until = clock.now() + static_cast<std::uint64_t>(
                                                  std::max<std::chrono::milliseconds::rep>(timeout.count(), 0)) *
                                                  1000;
    for (;;) {
      const io_ready now{read && wire_->to(side_).readable(), write && wire_->from(side_).writable()};
      if (now.read || now.write || clock.now() >= until) return now;
      const auto next = read ? wire_->to(side_).next_arrival() : std::nullopt;
      clock.advance_to(std::min(until, std::max(next.value_or(until), clock.now() + 1)));
    }
  }

  /// The wire, to add faults to it.
  simulated_wire& wire() noexcept { return *wire_; }

 private:
  std::shared_ptr<simulated_wire> wire_;
  std::size_t side_;
};

static_assert(byte_stream<simulated_stream>);

/// Two ends of one connection.
struct simulated_pair {
  simulated_stream left,  ///< side 0
      right;              ///< side 1
};
/// Makes a new connection. Borrows the clock, which moves when one of the ends waits.
inline simulated_pair connect_simulated(virtual_clock& clock, const wire_conditions& c, seeded_random random) {
  auto wire = std::make_shared<simulated_wire>(clock, c, random);
  return {simulated_stream(wire, 0), simulated_stream(wire, 1)};
}

}  // namespace tensorpull::testing
