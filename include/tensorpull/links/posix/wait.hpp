// How blocking drivers of hosts wait: in steps that are short enough to notice a stop request.
#pragma once

#include <tensorpull/links/byte_stream.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/chrono.hpp>

#include <poll.h>

namespace tensorpull::detail {

/// The moment when this time, which may be less than none, will be over; the last moment of the clock, if it is longer
/// than the clock goes.
inline std::chrono::steady_clock::time_point deadline_after(std::chrono::milliseconds time) noexcept {
  const auto now = std::chrono::steady_clock::now();
  const auto most = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::time_point::max() -
                                                                          now);
  return time < most ? now + std::max(time, {}) : std::chrono::steady_clock::time_point::max();
}
/// The time left until then, which may be less than none.
inline std::chrono::milliseconds left_until(std::chrono::steady_clock::time_point deadline) noexcept {
  return std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
}
/// Whether so much time has passed. It compares milliseconds: a time that means "never" would wrap in nanoseconds.
constexpr bool has_passed(std::chrono::steady_clock::duration spent, std::chrono::milliseconds time) noexcept {
  return std::chrono::duration_cast<std::chrono::milliseconds>(spent) >= time;
}

/// poll()'s record to wait for directions of a descriptor. poll() reports a hang-up even if no event is asked for, so a
/// descriptor that is waited for in neither direction is left out.
inline pollfd polled(int fd, io_ready directions) noexcept {
  return {directions.read || directions.write ? fd : -1,
          static_cast<short>((directions.read ? POLLIN : 0) | (directions.write ? POLLOUT : 0)), 0};
}
/// As poll(), with any time; less than 0 is none. No span: that of a new type costs 200 instantiations in each file.
inline int poll_for(pollfd* all, std::size_t count, std::chrono::milliseconds time) noexcept {
  const auto ms = std::max<std::int64_t>(0, std::min<std::int64_t>(time.count(), 1 << 30));
  return ::poll(all, static_cast<nfds_t>(count), static_cast<int>(ms));
}
/// Waits for directions of a descriptor.
inline void wait_for_descriptor(int fd, io_ready directions, std::chrono::milliseconds time) noexcept {
  pollfd p = polled(fd, directions);
  (void)poll_for(&p, 1, time);
}
/// Whether a connection waits at this descriptor of a listener.
inline bool others_wait(int fd) noexcept {
  pollfd p = polled(fd, {true, false});
  return poll_for(&p, 1, {}) > 0;
}
/// Sleeps; a signal ends it early.
inline void pause(std::chrono::milliseconds time) noexcept { (void)poll_for(nullptr, 0, time); }

}  // namespace tensorpull::detail
