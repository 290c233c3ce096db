// One pull, whatever it goes over and whatever the machine: the transfer, and what outlives each of its connections.
// The clock and random numbers come from a platform, the bytes from a wire (stream_wire.hpp, datagram_wire.hpp).
#pragma once

#include <tensorpull/chunking/concept.hpp>
#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/consumers/resume_cursor.hpp>
#include <tensorpull/core/ids.hpp>
#include <tensorpull/protocol/recipient/transfer.hpp>
#include <tensorpull/protocol/retry.hpp>
#include <tensorpull/pull/detail/progress_report.hpp>
#include <tensorpull/pull/platform.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/optional.hpp>
#include <tensorpull/transports/pull_options.hpp>

#include <concepts>
#include <type_traits>
#include <utility>

namespace tensorpull::detail {

/// A pull moves its bytes over this: an endpoint and a link. For a transfer `t` of type T:
///  1. `w.end()` is the endpoint;
///  2. `w.step(t) -> result<bool>` writes and reads once, and does not wait longer than wait_step. True: something has
///     moved, and the next step may follow at once. An error: the link cannot be used any more;
///  3. `w.wait(t, most)` waits until there is something to do, at most that long;
///  4. `w.leave(t, says)` is called at the end of a try if the link can still be used. `says`: the endpoint has a
///     goodbye to send. It does not wait.
template <class W, class T>
concept pull_wire = requires(W& w, T& t, std::chrono::milliseconds most, bool says) {
  w.end().begin_pull();
  { w.step(t) } noexcept -> std::same_as<result<bool>>;
  { w.wait(t, most) } noexcept;
  { w.leave(t, says) } noexcept;
};

/// The chunk length that progress is measured against.
template <class Chunking>
constexpr std::uint64_t chunk_length_of(const Chunking& c) noexcept {
  if constexpr (requires { c.chunk_bytes; }) return c.chunk_bytes;
  else return Chunking::max_chunk_bytes != 0 ? Chunking::max_chunk_bytes : default_chunk_bytes;
}

/// The work besides each step, if there is none.
struct nothing_else {
  constexpr void operator()(const auto&...) const noexcept {}
};

/// A random number by which the owner tells this recipient from others.
template <platform P>
recipient_id random_recipient() noexcept {
  recipient_id me{};
  // 0 is no number, and a source that gives it again and again is broken
  for (int i = 0; !me; ++i) {
    if (i == 4) broken_contract<P>("platform::random() gives nothing but 0");
    me = {P::random()};
  }
  return me;
}

/// Whether a pull with these parts can go on from a cursor.
template <class Parts>
inline constexpr bool resumes = true;
template <class Parts>
  requires requires { Parts::resumes; }
inline constexpr bool resumes<Parts> = Parts::resumes;

/// The transfer of a pull: the protocol's own, or the one that the transport makes of it.
template <class Parts, class Consumer>
struct transfer_of {
  using type = transfer<Consumer, typename Parts::chunking, typename Parts::integrity, typename Parts::limits>;
};
template <class Parts, class Consumer>
  requires requires { typename Parts::transport::template shared_transfer<Parts, Consumer>; }
struct transfer_of<Parts, Consumer> {
  using type = typename Parts::transport::template shared_transfer<Parts, Consumer>;
};

/// It stands where a pull has no pace. It is no member of the class, since each pull would have its own.
struct no_pace {};

/// One pull into a consumer: the transfer, and what outlives each of its connections (tries, the time given to a busy
/// owner, progress, the cursor). Borrows the consumer and the options. `Transfer`: over a stream by default.
template <class Parts, class Consumer, class Transfer = typename transfer_of<Parts, Consumer>::type>
class running_pull {
  using platform_type = typename Parts::platform;

 public:
  using chunking_type = typename Parts::chunking;
  using transfer_type = Transfer;

  /// `first_id`: the connection's next_id(), 1 for a new connection.
  running_pull(const pull_request& request, Consumer& to, const pull_options& options, const chunking_type& chunking,
               std::uint32_t first_id) noexcept
      : t_(to, request, chunking, first_id), options_(options), step_bytes_(chunk_length_of(chunking) / 64 + 1),
        resumed_(resumes<Parts> && options.cursor != nullptr && t_.resume(*options.cursor)),
        tries_(options.retry, options.per_request_timeout, t_.landed_bytes()) {
    if constexpr (requires { requires Parts::transport::anyone_answers; })  // a device's parts have no transport
      if (request.believes() && !options.believe) t_.fail({errc::version_required});
  }
  /// The same for what these options ask for. `me`: the recipient, if they name none.
  running_pull(const reference& ref, Consumer& to, const pull_options& options, const chunking_type& chunking,
               std::uint32_t first_id, recipient_id me = {}) noexcept
      : running_pull(asked_by(me, make_request(ref, options)), to, options, chunking, first_id) {}

  transfer_type& transfer() noexcept { return t_; }
  bool ended() const noexcept { return t_.ended(); }
  void fail(const error& why) noexcept { t_.fail(why); }

  /// Reports progress and updates the cursor; called after every step.
  void note() noexcept {
    report_.note(t_, options_);
    if constexpr (adapts<chunking_type>) t_.measured(std::chrono::duration_cast<std::chrono::nanoseconds>(pace_.lap()));
    const auto chunks = static_cast<std::uint32_t>(t_.chunks());
    if (std::exchange(chunks_, chunks) != chunks) keep_cursor();
  }
  /// Whether a stop was requested. If so, the transfer has failed with `cancelled`.
  bool stopped() noexcept {
    if (!detail::stopped<platform_type>() && !options_.stop.stop_requested()) return false;
    if (options_.stop_reason != nullptr) t_.give_reason(*options_.stop_reason);
    t_.fail({errc::cancelled});
    return true;
  }

  /// Begins a try over a connection.
  template <class Endpoint>
  void begin(Endpoint& end) noexcept {
    end.begin_pull();
    deadline_.restart();
    if constexpr (adapts<chunking_type>) pace_.restart();
  }
  /// Why this try is over, although the transfer has not ended: busy or timed_out; errc{} while it goes on. Called
  /// after every step.
  errc judge() noexcept {
    // only progress moves the deadline: at least 1/64 of a chunk, or an answer to a request
    if (t_.landed_bytes() >= landed_ + step_bytes_ || t_.answers() != answers_) {
      landed_ = t_.landed_bytes();
      answers_ = t_.answers();
      deadline_.restart();
    }
    if (t_.ended()) return {};
    if (t_.pause().count() > 0) return errc::busy;
    // even if bytes arrived: a peer that sends single bytes makes no progress
    return left().count() == 0 ? errc::timed_out : errc{};
  }
  /// The time since the last step was ours: it does not count against the owner.
  void excuse() noexcept { deadline_.restart(); }
  /// The time that is left for progress.
  std::chrono::milliseconds left() const noexcept { return deadline_.left(options_.per_request_timeout); }
  /// Ends a try, and has a goodbye to send if the transfer has ended and the owner has to know. True: there is
  /// something to send.
  template <class Endpoint>
  [[gnu::noinline]] bool finish(Endpoint& end) noexcept {
    end.end_pull(t_);
    if (!t_.ended()) return false;
    const auto bye = t_.farewell();
    return bye && end.send_control(*bye);
  }

  /// Moves bytes until the transfer has ended, or until an error after which another try may succeed. `besides(moved)`:
  /// called after every step with its result; if that is an error, the link cannot be used any more.
  template <pull_wire<Transfer> Wire, class Besides>
  [[gnu::noinline]] result<void> drive(Wire& over, Besides& besides) noexcept {
    begin(over.end());
    errc why{};
    while (!t_.ended() && why == errc{} && !stopped()) {
      const result<bool> moved = over.step(t_);
      note();
      besides(moved);
      if (!moved) {
        if (!is_passing(moved.error().code)) t_.fail(moved.error());
        (void)finish(over.end());
        if (t_.ended()) return {};
        return failure(moved.error());
      }
      why = judge();
      if (!t_.ended() && why == errc{} && !*moved) over.wait(t_, std::min(wait_step, left()));
    }
    over.leave(t_, finish(over.end()));
    if (why != errc{}) return failure(why);
    return {};
  }

  /// The same, and as long as the owner is busy it begins again over the same link, which may be in the middle of a
  /// frame. `pause`: as in run().
  template <pull_wire<Transfer> Wire, class Besides, class Pause>
  result<void> drive(Wire& over, Besides& besides, Pause& pause) noexcept {
    for (;;) {
      const result<void> how = drive(over, besides);
      if (how || how.error() != errc::busy || rest(how.error(), pause) != errc{}) return how;
    }
  }
  /// Tries until the transfer has ended. `once() -> result<void>` is one try, and `pause(left)`, between two of them,
  /// waits at most so long.
  template <class Once, class Pause>
  result<receipt> run(Once once, Pause&& pause) noexcept(noexcept(once())) {
    for (;;) {
      const result<void> how = once();
      if (how || rest(how.error(), pause) != errc{}) return outcome();
    }
  }

  /// How long to wait before another try; nothing if there is none: the transfer has failed with `why`.
  [[gnu::noinline]] optional<std::chrono::milliseconds> try_again(const error& why) noexcept {
    const auto wait = tries_.after(why.code, t_.landed_bytes(), t_.pause(), platform_type::random(), step_bytes_);
    if (!wait) t_.fail(why);
    return wait;
  }
  /// Waits before another try. errc{}: there is one. Otherwise the transfer has ended.
  template <class Pause>
  [[gnu::noinline]] errc rest(const error& why, Pause& pause) noexcept {
    if (t_.ended()) return why.code;
    const auto delay = try_again(why);
    if (delay) (void)detail::rest<platform_type>(*delay, [this]() noexcept { return t_.ended() || stopped(); }, pause);
    t_.restart();
    return t_.ended() ? why.code : errc{};
  }

  [[gnu::noinline]] result<receipt> outcome() noexcept {
    keep_cursor();
    const auto how = t_.outcome();
    report_.ended(t_, options_, how);
    return how;
  }

 private:
  static pull_request asked_by(recipient_id me, pull_request request) noexcept {
    if (!request.recipient) request.recipient = me;
    return request;
  }
  /// If the owner was never reached, the cursor stays as it was; if it has another version now, it is of no use.
  void keep_cursor() noexcept {
    if constexpr (resumes<Parts>) {
      if (options_.cursor == nullptr) return;
      const bool stale = t_.ended() && !t_.outcome() && t_.outcome().error() == errc::stale_version;
      if (t_.total_bytes() != 0 || !resumed_ || stale) *options_.cursor = t_.cursor();
    }
  }

  transfer_type t_;  // first, because a digest may have to lie at a multiple of 64 bytes
  const pull_options& options_;
  std::uint64_t step_bytes_;  // progress that counts: 1/64 of a chunk
  std::uint64_t landed_ = 0;
  std::uint32_t chunks_ = 0;  // the count's lower half: it is looked at after every step
  std::uint32_t answers_ = 0;
  bool resumed_;
  retry_state tries_;
  stopwatch<platform_type> deadline_;
  progress_report<platform_type> report_;
  [[no_unique_address]] std::conditional_t<adapts<chunking_type>, stopwatch<platform_type>, no_pace> pace_;
};

}  // namespace tensorpull::detail
