// Decides when a host ends a connection that is silent, too slow, or in a transfer that does not move. A timer tells it
// what the connection has done.
#pragma once

#include <tensorpull/core/splitmix64.hpp>
#include <tensorpull/links/posix/ip_address.hpp>
#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/std/chrono.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace tensorpull {

/// Budgets of a host's connections, on the monotonic clock.
struct connection_budgets {
  /// Until the other end has shown something: asked for a published reference, sent a message that was taken, or
  /// answered. Nothing is asked of a connection that this end has begun (once it is established) or trusts. The time
  /// starts with the host's first look at the connection, within 0.2 s of its start.
  std::chrono::milliseconds accept = std::chrono::seconds(10);
  /// While one side owes bytes (an unfinished frame, answers not taken, a transfer under way): the connection ends if
  /// on average fewer than `least_bytes_per_second` move over this time. While the other end waits for memory of ours,
  /// no time passes.
  std::chrono::milliseconds stall = std::chrono::seconds(60);
  /// While neither side owes bytes: the connection ends if nothing is heard for so long. Requests that are refused do
  /// not count.
  std::chrono::milliseconds idle = std::chrono::seconds(600);
  std::uint64_t least_bytes_per_second = 64;  ///< in both directions together; 0: any byte counts
  /// From the first to the last byte of a frame above 512 bytes, which takes one of the host's buffers meanwhile.
  std::chrono::milliseconds frame = std::chrono::seconds(10);
};

namespace detail {

/// The record of a connection so far, for its budgets.
struct connection_activity {
  std::uint64_t bytes = 0;  ///< moved in both directions
  std::uint32_t heard = 0;  ///< frames of the other end's that count (endpoint::heard)
  std::uint32_t long_frame = 0;  ///< the number of the long frame that is arriving; 0: none
  bool trusted = false;  ///< nothing has to be heard first
  bool owing = false;  ///< one side owes bytes
  bool awaits_us = false;  ///< the other end waits for memory of ours
};

/// A number for the address at the other end of a socket, without its port: for the first 64 bits of an IPv6 address,
/// and for all of an IPv4 one, however it is written. Several addresses may have the same number. no_neighbours: it has
/// no such address.
inline constexpr std::uint8_t no_neighbours = 0;
inline std::uint8_t neighbours_of(int socket) noexcept {
  const ip_address a = ip_address::of_peer(socket);
  if (!a) return no_neighbours;
  return static_cast<std::uint8_t>(1 + splitmix64{a.neighbourhood()}() % 255);
}

class budget_watch {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  explicit budget_watch(time_point now) noexcept : mark_(now) {}

  /// Whether a time is over.
  bool over(const connection_budgets& b, time_point now, const connection_activity& a) noexcept {
    const auto limit = a.owing ? b.stall : b.idle;
    const bool active = a.owing ? a.bytes - before_.bytes >= at_least(b.least_bytes_per_second, limit)
                                : a.heard != before_.heard;
    if (first_ == time_point{}) first_ = now;
    if (a.long_frame != before_.long_frame || a.awaits_us) {
      frame_mark_ = now;
      before_.long_frame = a.long_frame;
    }
    if (active || a.awaits_us || a.owing != before_.owing || a.trusted != before_.trusted) {
      mark_ = now;
      before_ = a;
    }
    if (!a.trusted && a.heard == 0 && has_passed(now - first_, b.accept)) return true;
    if (a.long_frame != 0 && has_passed(now - frame_mark_, b.frame)) return true;
    return has_passed(now - mark_, limit);
  }
  /// When over() was called for the first time; none yet: time_point{}.
  time_point first() const noexcept { return first_; }

 private:
  static std::uint64_t at_least(std::uint64_t per_second, std::chrono::milliseconds limit) noexcept {
    const auto seconds = static_cast<std::uint64_t>(limit.count()) / 1000,
               rest = static_cast<std::uint64_t>(limit.count()) % 1000;
    if (per_second != 0 && seconds >= ~std::uint64_t{0} / 2 / per_second) return ~std::uint64_t{0};
    return per_second * seconds + per_second * rest / 1000 + 1;
  }
  time_point mark_, first_{}, frame_mark_{};
  connection_activity before_{};  // at the last mark
};

/// Others wait for room among the connections, or for a descriptor: chooses who is ended to make room for them, among
/// connections that are shown to it from the oldest on.
class room_maker {
 public:
  /// `share`: how many connections from one address may have shown nothing.
  explicit room_maker(std::size_t share = ~std::size_t{0}) noexcept : share_(share) {}
  /// Counts a connection, if it has shown nothing.
  void counts(const connection_activity& a, std::uint8_t neighbours) noexcept { of_[neighbours] += !has_shown(a); }
  /// Whether this connection is ended: it has shown nothing for a second, and not too many went before it, or its
  /// neighbours have more than their share.
  bool ends(const budget_watch& w, budget_watch::time_point now, const connection_activity& a,
            std::uint8_t neighbours = no_neighbours) noexcept {
    const bool crowds = neighbours != no_neighbours && of_[neighbours] > share_;
    if ((ended_ == most && !crowds) || has_shown(a) || w.first() == budget_watch::time_point{} ||
        now - w.first() < courtesy)
      return false;
    --of_[neighbours];
    crowded_ = crowded_ || crowds;
    ended_ += crowds ? 0 : 1;
    return true;
  }
  /// Whether there were any.
  bool made() const noexcept { return ended_ > 0 || crowded_; }

 private:
  static bool has_shown(const connection_activity& a) noexcept { return a.trusted || a.heard != 0; }
  /// How long a silent connection is tolerated while others wait, and how many are ended at a time.
  static constexpr std::chrono::seconds courtesy{1};
  static constexpr std::size_t most = 64;
  std::size_t share_, ended_ = 0;
  std::array<std::uint32_t, 256> of_{};
  bool crowded_ = false;
};

}  // namespace detail
}  // namespace tensorpull
