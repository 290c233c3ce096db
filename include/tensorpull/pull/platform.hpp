// The services that a driver takes from its machine: a clock, random numbers, and what happens when a contract is
// broken. Nothing is global: the platform is a type that the program hands in.
#pragma once

#include <tensorpull/links/byte_stream.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/chrono.hpp>

#include <concepts>
#include <cstdint>
#include <limits>

namespace tensorpull {

namespace detail {
template <class T>
inline constexpr bool is_time = false;
template <class Rep, class Period>
inline constexpr bool is_time<std::chrono::duration<Rep, Period>> = std::integral<Rep> && sizeof(Rep) >= 4;
}  // namespace detail

/// A platform P. All of its members are static functions, so that it takes no memory, and none throws:
///  1. `P::now()` gives the time since some moment as a std::chrono::duration over an integer of 32 bits at least. It
///     never goes back. An unsigned one may wrap, as `duration<std::uint32_t, std::milli>` does after 49 days;
///     time-outs are then cut to a quarter of its range;
///  2. `P::random()` gives 64 random bits. A pull takes its number from them, and the jitter between its tries;
///  3. `P::panic(what)` is told which contract is broken, in a text that lives as long as the program. It is for faults
///     of the program itself (a stream that claims more bytes than it was offered, a clock that goes back), never for
///     the other side's bytes. It should not return: stop, restart, or write the text down and wait for the watchdog.
///     If it returns, the driver traps;
///  4. optionally, `P::stopped()` is whether drivers should end. They ask after each step, and every 50 ms while they
///     wait.
template <class P>
concept platform = requires(const char* what) {
  requires detail::is_time<decltype(P::now())> && noexcept(P::now());
  { P::random() } noexcept -> std::same_as<std::uint64_t>;
  { P::panic(what) } noexcept;
};

namespace detail {

/// Ends the program, since somebody has broken a contract. A function of its own, out of the way of what is done for
/// each step.
template <platform P>
[[noreturn, gnu::noinline, gnu::cold]] void broken_contract(const char* what) noexcept {
  P::panic(what);
  __builtin_trap();
}

/// Measures time from a moment on.
template <platform P>
class stopwatch {
  using moment = decltype(P::now());
  static constexpr moment half{std::numeric_limits<typename moment::rep>::max() / 2};
  /// A half of that again, so that a late step is no clock that went back.
  static constexpr moment longest{std::numeric_limits<typename moment::rep>::max() / 4};

 public:
  void restart() noexcept { start_ = P::now(); }
  std::chrono::milliseconds spent() const noexcept {
    const moment now = P::now() - start_;  // an unsigned one has wrapped twice then, and the difference is right
    if (now < moment::zero() || (!std::numeric_limits<typename moment::rep>::is_signed && now > half))
      broken_contract<P>("platform::now() went back");
    return std::chrono::duration_cast<std::chrono::milliseconds>(now);
  }
  /// The time since the start, or since the lap before. A new lap begins.
  moment lap() noexcept {
    const moment before = start_;
    start_ = P::now();
    return start_ - before;
  }
  /// The time left of `budget`, by subtraction, so that even the largest one does not overflow.
  std::chrono::milliseconds left(std::chrono::milliseconds budget) const noexcept {
    budget = std::min(budget, std::chrono::duration_cast<std::chrono::milliseconds>(longest));
    const auto gone = spent();
    return gone >= budget ? std::chrono::milliseconds::zero() : budget - gone;
  }

 private:
  moment start_ = P::now();
};

/// Whether the program wants its drivers to end.
template <platform P>
bool stopped() noexcept {
  if constexpr (requires {
                  { P::stopped() } -> std::convertible_to<bool>;
                })
    return P::stopped();
  else return false;
}

/// Waits for `time` with `pause(left)`, which waits at most that long and returns; no step is longer than wait_step.
/// False: `ends()` was true.
template <platform P, class Ends, class Pause>
bool rest(std::chrono::milliseconds time, Ends ends, Pause&& pause) noexcept {
  for (stopwatch<P> waited;;) {
    if (ends()) return false;
    const auto left = waited.left(time);
    if (left <= left.zero()) return true;
    pause(std::min(left, wait_step));
  }
}

}  // namespace detail

}  // namespace tensorpull
