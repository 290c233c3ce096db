// What a conformance check is given: a way to connect two ends of the stream, how long it may wait, and what it may count.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/links/byte_stream.hpp>
#include <tensorpull/std/chrono.hpp>

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace tensorpull::testing {

/// Two connected ends: what is written to one is read from the other.
template <byte_stream S>
struct stream_pair {
  using stream = S;
  S left, right;
};

/// Opens connections of the stream that is checked:
///  1. `connect()` gives a result<stream_pair<S>>, a new connection each time;
///  2. optionally, `connect.now_us()`: the time in which its streams wait, in microseconds since any fixed moment, never going back. A stream
///     that waits in virtual time needs it; without it the time is that of std::chrono::steady_clock.
template <class F>
concept stream_factory = requires(F& connect) {
  typename std::remove_cvref_t<decltype(connect())>::value_type::stream;
  requires std::same_as<std::remove_cvref_t<decltype(connect())>,
                        result<stream_pair<typename std::remove_cvref_t<decltype(connect())>::value_type::stream>>>;
};

struct conformance_options {
  /// How long bytes may be on their way; a stream that is slower fails.
  std::chrono::milliseconds patience = std::chrono::seconds(5);
  /// A call that never waits returns within this time, at least once in five times.
  std::chrono::milliseconds prompt{40};
  /// The heap allocations of the process so far, if the program counts them (operator new replaced); nullptr: requirement 6.2 is skipped.
  std::uint64_t (*allocations)() noexcept = nullptr;
};

}  // namespace tensorpull::testing
