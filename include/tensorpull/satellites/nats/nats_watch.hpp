// Whether the coordinator of a transaction is still there.
#pragma once

#include <tensorpull/core/result.hpp>
#include <tensorpull/satellites/nats/nats_link.hpp>
#include <tensorpull/satellites/nats/nats_subject.hpp>
#include <tensorpull/std/chrono.hpp>
#include <tensorpull/system/entropy.hpp>

namespace tensorpull {

/// How long an owner may be gone.
struct nats_patience {
  /// The server reports that nobody serves the subject: the owner's program has ended, or its connection was lost. It
  /// may return within this time.
  std::chrono::milliseconds gone = std::chrono::seconds(5);
  /// Nobody answers, although the server knows of a subscriber: the owner's program is stopped or busy.
  std::chrono::milliseconds silent = std::chrono::seconds(600);
};

/// Asks twice a second, with messages of no bytes, whether a subject is served. While the link has no server, nothing
/// is known and no time passes.
class nats_watch {
 public:
  using time_point = std::chrono::steady_clock::time_point;  ///< points in time

  /// Begins to watch; the answers need one of the subjects that the link may serve. Error: table_full.
  template <class Link>
  result<void> begin(Link& link, const nats_subject& whom, time_point now) noexcept {
    const system_entropy random;
    whom_ = whom;
    here_ = link.another_inbox({random(), random()});
    heard_ = now;
    return link.serve(here_);
  }
  /// Stops watching.
  template <class Link>
  void end(Link& link) noexcept {
    link.stop_serving(here_);
    *this = {};
  }
  explicit operator bool() const noexcept { return static_cast<bool>(whom_); }

  /// Evaluates the answers, and asks again when it is time. Call it several times a second, and receive from the link
  /// in between.
  template <class Link>
  void step(Link& link, time_point now) noexcept {
    const nats_presence seen = link.answers_at(here_);
    if (link.away() || seen.here != seen_.here) {
      known_ = known_ || seen.here != seen_.here;
      heard_ = now;
      gone_ = false;
    } else if (seen.nobody != seen_.nobody && !gone_) {
      gone_ = true;
      gone_since_ = now;
    }
    seen_ = seen;
    if (now - asked_ < interval) return;
    asked_ = now;
    link.ask(whom_, here_);
  }
  /// Whether it has answered at least once.
  bool known() const noexcept { return known_; }
  /// Whether the server last reported that nobody serves the subject.
  bool nobody() const noexcept { return gone_; }
  /// Whether it has been gone for longer than the patience.
  bool lost(const nats_patience& patience, time_point now) const noexcept {
    return (gone_ && detail::has_passed(now - gone_since_, patience.gone)) ||
           detail::has_passed(now - heard_, patience.silent);
  }

 private:
  static constexpr std::chrono::milliseconds interval{500};

  nats_subject whom_{}, here_{};
  nats_presence seen_{};
  time_point asked_{}, heard_{}, gone_since_{};
  bool gone_ = false, known_ = false;
};

}  // namespace tensorpull
