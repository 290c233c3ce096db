// The arguments of a conformance check: how to connect two ends of the stream, how long to wait, and what to count.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/links/datagram_link.hpp>
#include <tensorpull/std/chrono.hpp>

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace tensorpull::testing {

/// Two connected ends: what is written to one is read from the other.
template <byte_stream S>
struct stream_pair {
  using stream = S;  ///< the stream that is checked
  S left,            ///< one end
      right;         ///< the other end
};

/// Opens connections of the stream that is checked:
///  1. `connect()` gives a result<stream_pair<S>>, a new connection each time;
///  2. optionally, `connect.now_us()`: the clock by which its streams wait, in microseconds since a fixed moment, which
///     never goes back. A stream that waits in virtual time needs it; otherwise the clock is std::chrono::steady_clock.
template <class F>
concept stream_factory = requires(F& connect) {
  typename std::remove_cvref_t<decltype(connect())>::value_type::stream;
  requires std::same_as<std::remove_cvref_t<decltype(connect())>,
                        result<stream_pair<typename std::remove_cvref_t<decltype(connect())>::value_type::stream>>>;
};

/// Two ends of a datagram link. A datagram to `to_right` over `left` arrives at `right`, which answers the address that
/// it came from.
template <datagram_link D>
struct datagram_pair {
  using link = D;  ///< the link that is checked
  D left,  ///< the end that speaks first, as a recipient does
      right;  ///< the other end
  typename D::address to_right{};  ///< under which address `left` reaches `right`
};

/// Makes pairs of the datagram link that is checked:
///  1. `connect()` gives a result<datagram_pair<D>>, a new pair each time, over which nothing has gone yet;
///  2. optionally, `connect.now_us()`, as a stream_factory's;
///  3. optionally, `connect.damage_next()`: changes bytes of the next datagram that goes over the newest pair, on its
///     way, at a position that `checked` protects; other ones each time. Without it requirement 6 is skipped.
template <class F>
concept datagram_factory = requires(F& connect) {
  typename std::remove_cvref_t<decltype(connect())>::value_type::link;
  requires std::same_as<std::remove_cvref_t<decltype(connect())>,
                        result<datagram_pair<typename std::remove_cvref_t<decltype(connect())>::value_type::link>>>;
};

/// How patient a check is, and what it counts.
struct conformance_options {
  /// The longest time that bytes may take to arrive. A slower stream fails.
  std::chrono::milliseconds patience = std::chrono::seconds(5);
  /// A call that must not wait passes if the shortest of five runs is within this time.
  std::chrono::milliseconds prompt{40};
  /// Returns the heap allocations of the process so far, if the program counts them (with its own operator new).
  /// nullptr: requirement 6.2 is skipped.
  std::uint64_t (*allocations)() noexcept = nullptr;
};

}  // namespace tensorpull::testing
