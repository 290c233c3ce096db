// A datagram link: whole datagrams that may be lost, doubled and re-ordered. A class of your own that meets the
// requirements is driven like a UDP socket.
#pragma once

#include <tensorpull/links/byte_stream.hpp>
#include <tensorpull/std/chrono.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tensorpull {

/// A datagram link D sends and receives whole datagrams. Any of them may be lost, doubled, or overtaken by a later one:
///  1. `D::address` names a peer: a regular type that is trivially copyable, with `a.hash()`, which gives a
///     std::uint64_t. A link between two ends has an empty one (only_peer);
///  2. `D::max_datagram_bytes` is a constant: no datagram is longer. `d.datagram_bytes()` gives the longest now, at
///     most this and at least 128;
///  3. `d.receive(memory, from)` takes one datagram and gives its sender; it never waits. would_block: none is there. A
///     datagram that is longer than the memory is dropped as if it had been lost. `closed`, `failed`: the link can be
///     used no more;
///  4. `d.send(spans, to)` sends one datagram, the whole or nothing, and never waits. would_block: try again when
///     wait() returns so. `ok` with 0 bytes: it was dropped, as a network would have dropped it (the peer is not there,
///     or there was no memory for it);
///  5. `d.wait(read, write, timeout)` waits until a direction that was asked for can make progress, or the timeout is
///     over;
///  6. `D::checked` is a constant: whether a datagram whose bytes were changed on the way is dropped, except with a
///     probability of 2^-32;
///  7. `D::addresses_are_proved` is a constant: whether nobody can send with the address of another. If not, drivers
///     send an address no more bytes than arrived from it until it has returned a cookie, which is computed from the
///     address's bytes, so that it has no padding;
///  8. movable, closed by its destructor; no call throws, allocates (a link may state otherwise,
///     `D::allocations_per_datagram`), or raises a signal.
/// testing/conformance checks each of them.
template <class D>
concept datagram_link = std::movable<D> && std::regular<typename D::address> &&
                        requires(D d, const D& c, const typename D::address& to, typename D::address& from,
                                 std::span<std::byte> in, gather_list out, std::chrono::milliseconds t) {
                          { to.hash() } noexcept -> std::same_as<std::uint64_t>;
                          requires std::same_as<decltype(D::max_datagram_bytes), const std::size_t>;
                          { c.datagram_bytes() } noexcept -> std::same_as<std::size_t>;
                          { d.receive(in, from) } noexcept -> std::same_as<io_result>;
                          { d.send(out, to) } noexcept -> std::same_as<io_result>;
                          { d.wait(true, true, t) } noexcept -> std::same_as<io_ready>;
                          requires std::same_as<decltype(D::checked), const bool>;
                          requires std::same_as<decltype(D::addresses_are_proved), const bool>;
                        };

/// The address of a link that has one peer: a serial line, a radio between two devices.
struct only_peer {
  friend constexpr bool operator==(const only_peer&, const only_peer&) noexcept = default;
  /// All are the same.
  constexpr std::uint64_t hash() const noexcept { return 0; }
};

namespace detail {
/// The smallest model: it shows that the concept asks for no more than this.
struct null_datagrams {
  using address = only_peer;
  static constexpr std::size_t max_datagram_bytes = 128;
  static constexpr bool checked = true;
  static constexpr bool addresses_are_proved = true;
  std::size_t datagram_bytes() const noexcept { return max_datagram_bytes; }
  io_result receive(std::span<std::byte>, address&) noexcept { return {io_status::closed, 0, 0}; }
  io_result send(gather_list, const address&) noexcept { return {io_status::closed, 0, 0}; }
  io_ready wait(bool, bool, std::chrono::milliseconds) noexcept { return {}; }
};
static_assert(datagram_link<null_datagrams>);
}  // namespace detail

}  // namespace tensorpull
