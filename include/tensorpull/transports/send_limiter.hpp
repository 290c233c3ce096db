// How fast an owner of many connections may send: in all, and to each of them. Drivers of streams and of datagrams have
// one; the time is handed in.
#pragma once

#include <tensorpull/core/byte_rate.hpp>
#include <tensorpull/core/detail/linked_queue.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/mutex.hpp>

#include <cstdint>
#include <utility>

namespace tensorpull {

/// Bytes a second that an owner hands to the system, all of its frames counted; 0: no limit. They hold over any second.
/// Use at least 1,000 for each connection that is served at a time: a recipient that is sent less may give up.
struct send_limits {
  std::uint64_t owner_bytes_per_second = 0;  ///< to all together
  /// to each connection: a peer with several connections has several shares, within what the owner sends in all
  std::uint64_t recipient_bytes_per_second = 0;
};

/// Shares out the bytes that may be sent. A connection that has something to send takes some. If there is none, it
/// waits in a queue. tick() hands out the rate since then, in equal parts to all that wait. A connection that does not
/// need all of its part leaves. A part that one cannot use because of its own limit is left to the others. `Lock`:
/// no_lock, or a lock if several threads send. No heap; 40 bytes for each connection.
template <class Lock = no_lock>
class send_limiter {
 public:
  /// One connection's part. It must not move while it waits.
  class share {
    friend send_limiter;
    friend detail::linked_queue<share>;
    share *before_ = nullptr, *after_ = nullptr;
    std::uint64_t amount_ = 0;  // what it needs if it waits, otherwise what it was given
    byte_rate::used used_{};
    bool waits_ = false;
  };
  /// How often tick() has to be called while somebody waits.
  static constexpr std::chrono::milliseconds tick_interval{10};

  /// `limits`: 0 means no limit.
  constexpr explicit send_limiter(const send_limits& limits = {}) noexcept
      : all_(limits.owner_bytes_per_second), each_(limits.recipient_bytes_per_second), ticking_(limited()) {}

  /// Whether there is a limit.
  constexpr bool limited() const noexcept { return all_.limited() || each_.limited(); }
  /// The most that one call of take() gives: a datagram that is longer is never sent.
  constexpr std::uint64_t most() const noexcept {
    return std::min(all_.limited() ? all_.burst_bytes() : ~std::uint64_t{0},
                    each_.limited() ? each_.burst_bytes() : ~std::uint64_t{0});
  }

  /// Takes what may be sent now, at most `wanted` bytes. Fewer than `least` are not taken (a datagram cannot be cut).
  /// 0: it waits from now on until tick() wakes it.
  std::uint64_t take(share& s, std::uint64_t wanted, std::chrono::nanoseconds now, std::uint64_t least = 1) noexcept {
    const lock_guard hold(lock_);
    if (s.waits_) return 0;
    if (const std::uint64_t n = std::min(s.amount_, wanted); n >= least) {
      s.amount_ -= n;
      granted_ -= n;
      use(s, n, now);
      return n;
    }
    drop_grant(s);
    const std::uint64_t needed = std::min(wanted, std::max(least, piece()));
    // no connection overtakes one that waits, or one whose turn it is
    const std::uint64_t there = waiting_.empty() && granted_ == 0 ? std::min(wanted, left(s, now)) : 0;
    if (there < needed) {
      enqueue(s, needed);
      return 0;
    }
    use(s, there, now);
    return there;
  }
  /// Gives back what was taken and not sent.
  void put_back(share& s, std::uint64_t bytes) noexcept {
    const lock_guard hold(lock_);
    all_.give_back(total_, bytes);
    each_.give_back(s.used_, bytes);
  }
  /// Whether it waits for tick().
  bool waits(const share& s) const noexcept {
    const lock_guard hold(lock_);
    return s.waits_;
  }
  /// The connection has nothing to send now, or is gone: what it was given and has not taken is for others.
  void leave(share& s) noexcept {
    const lock_guard hold(lock_);
    if (s.waits_) dequeue(s);
    else drop_grant(s);
  }
  /// Whether somebody waits and nobody calls tick(): the caller has to, until it returns false. At the start somebody
  /// calls it.
  bool needs_ticks() noexcept {
    const lock_guard hold(lock_);
    return !waiting_.empty() && !std::exchange(ticking_, true);
  }
  /// Hands out the rate since then, and calls `wake(share)` for each that got some. False: nobody waits any more.
  template <class Wake>
  bool tick(std::chrono::nanoseconds now, Wake wake) noexcept {
    const lock_guard hold(lock_);
    std::uint64_t waiting = count_;
    for (share *s = waiting_.first, *next = nullptr; s != nullptr; s = next, --waiting) {
      next = s->after_;
      const std::uint64_t there = all_.left(total_, now), all = there - std::min(there, granted_),
                          own = each_.left(s->used_, now);
      if (own < s->amount_) continue;
      if (all < s->amount_) break;
      const std::uint64_t given = std::min(own, std::max(all / waiting, s->amount_));
      dequeue(*s);
      s->amount_ = given;
      granted_ += given;  // it counts as used when it is taken: an hour may pass until then
      wake(*s);
    }
    return ticking_ = !waiting_.empty();
  }

 private:
  /// The least that is worth waking somebody for.
  constexpr std::uint64_t piece() const noexcept {
    return std::min<std::uint64_t>(4096, std::max<std::uint64_t>(most() / 4, 1));
  }
  std::uint64_t left(const share& s, std::chrono::nanoseconds now) const noexcept {
    return std::min(all_.left(total_, now), each_.left(s.used_, now));
  }
  void use(share& s, std::uint64_t n, std::chrono::nanoseconds now) noexcept {
    all_.use(total_, n, now);
    each_.use(s.used_, n, now);
  }
  void drop_grant(share& s) noexcept { granted_ -= std::exchange(s.amount_, 0); }
  void enqueue(share& s, std::uint64_t needed) noexcept {
    s.waits_ = true;
    s.amount_ = needed;
    waiting_.append(s);
    ++count_;
  }
  void dequeue(share& s) noexcept {
    s.waits_ = false;
    s.amount_ = 0;
    waiting_.take_out(s);
    --count_;
  }

  byte_rate all_, each_;
  byte_rate::used total_{};
  detail::linked_queue<share> waiting_{};
  std::uint64_t count_ = 0, granted_ = 0;  // how many wait, and what others were given and have not taken
  bool ticking_;
  [[no_unique_address]] mutable Lock lock_{};
};

}  // namespace tensorpull
