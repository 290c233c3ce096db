// Runs one transfer over one byte stream until it ends, hearing the abort signal and keeping the request's time-out.
#pragma once

#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/optional.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>
#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/system/entropy.hpp>
#include <tensorpull/transports/detail/progress_report.hpp>
#include <tensorpull/transports/pull_options.hpp>
#include <tensorpull/links/pump.hpp>

namespace tensorpull {

namespace detail {

inline constexpr std::chrono::milliseconds wait_step{50};

/// A deadline that real progress moves: at least 1/64 of a chunk, or an answer to a request.
class progress_deadline {
 public:
  using clock = std::chrono::steady_clock;
  progress_deadline(std::chrono::milliseconds budget, std::uint64_t step_bytes) noexcept : budget_(budget), step_(step_bytes), start_(clock::now()) {}

  template <class Transfer>
  void note(const Transfer& t) noexcept {
    if (t.landed_bytes() < landed_ + step_ && t.answers() == answers_) return;
    landed_ = t.landed_bytes();
    answers_ = t.answers();
    start_ = clock::now();
  }
  bool over() const noexcept { return left() <= std::chrono::milliseconds::zero(); }
  /// Time left; computed by subtraction, so that the largest budget does not wrap.
  std::chrono::milliseconds left() const noexcept {
    const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - start_);
    return spent >= budget_ ? std::chrono::milliseconds::zero() : budget_ - spent;
  }

 private:
  std::chrono::milliseconds budget_;
  std::uint64_t step_, landed_ = 0;
  std::uint32_t answers_ = 0;
  clock::time_point start_;
};

/// The length that progress is measured against.
template <class Chunking>
constexpr std::uint64_t chunk_length_of(const Chunking& c) noexcept {
  if constexpr (requires { c.chunk_bytes; }) return c.chunk_bytes;
  else return Chunking::max_chunk_bytes != 0 ? Chunking::max_chunk_bytes : default_chunk_bytes;
}

/// What one pull keeps over all its connections: tries, patience with a busy owner, reports, the cursor.
template <class Transfer>
class persistence {
 public:
  persistence(Transfer& t, const pull_options& options) noexcept
      : t_(t), options_(options), resumed_(options.cursor != nullptr && t.resume(*options.cursor)),
        tries_(options.retry, static_cast<std::uint64_t>(std::max<std::int64_t>(options.per_request_timeout.count(), 0)), t.landed_bytes()), report_(options) {}

  /// After every step.
  void note() noexcept {
    report_.note(t_);
    if (t_.chunks() == chunks_) return;
    chunks_ = t_.chunks();
    keep_cursor();
  }

  /// How long to wait before another try; nothing: the transfer has ended because of `why`.
  optional<std::chrono::milliseconds> try_again(const error& why) noexcept {
    const auto wait = tries_.after(why.code, t_.landed_bytes(), t_.pause_ms(), system_entropy{}());
    if (!wait) return t_.fail(why), optional<std::chrono::milliseconds>{};
    return std::chrono::milliseconds(static_cast<std::int64_t>(*wait));
  }

  result<receipt> outcome() noexcept {
    keep_cursor();
    const auto how = t_.outcome();
    report_.ended(t_, how);
    return how;
  }

 private:
  /// The owner has nothing any more that the cursor could go on with.
  bool stale() const noexcept {
    if (!t_.ended()) return false;
    const auto how = t_.outcome();
    return !how && how.error().code == errc::stale_version;
  }
  /// Who was not reached has not changed how far it is.
  void keep_cursor() noexcept {
    if (options_.cursor != nullptr && (t_.total_bytes() != 0 || !resumed_ || stale())) *options_.cursor = t_.cursor();
  }

  Transfer& t_;
  const pull_options& options_;
  bool resumed_;
  perseverance tries_;
  progress_report report_;
  std::uint64_t chunks_ = 0;
};

struct nothing_else {
  constexpr void operator()() const noexcept {}
};

/// Moves bytes until `t` has ended (no value), or until something is in the way that another try may get past.
/// `broken`: set where the connection cannot be used any more. `besides()`: called after every step.
template <class Endpoint, class Transfer, byte_stream Stream, class Besides = nothing_else>
optional<error> drive(Endpoint& end, Transfer& t, Stream& stream, std::span<std::byte> scratch, const pull_options& options,
                            std::uint64_t chunk_bytes, persistence<Transfer>& all, optional<error>& broken, Besides besides = {}) noexcept {
  optional<error> why;
  end.begin_pull();
  progress_deadline deadline(options.per_request_timeout, chunk_bytes / 64 + 1);
  while (!t.ended() && !why) {
    if (options.stop.stop_requested()) {
      if (options.stop_reason != nullptr) t.give_reason(*options.stop_reason);
      t.fail({errc::cancelled, 0, 0, {}});
      break;
    }
    const auto did = pump_once(end, t, stream, scratch, wait_step);
    all.note();
    besides();
    if (!did) {
      broken = why = did.error();
      if (!is_passing(why->code)) t.fail(*why), why = {};
      break;
    }
    deadline.note(t);
    if (t.ended()) break;
    if (t.pause_ms() > 0) why = error{errc::busy, 0, 0, {}};
    else if (deadline.over()) why = error{errc::timed_out, 0, 0, {}};  // bytes alone are no progress: the other end may dribble
    else if (did->received > 0 || did->sent > 0) continue;
    else if (!did->waited) stream.wait(did->wants_read, did->wants_write, std::min(wait_step, deadline.left()));
  }
  end.end_pull(t);
  if (t.ended() && !broken)
    if (const auto bye = t.farewell(); bye && end.send_control(*bye))
      (void)pump_once(end, t, stream, scratch);  // the owner hears of it if the connection takes it at once
  return why;
}

/// Waits for `time` with `step(left)`, which waits at most that long and returns. False: `stop` was requested.
template <class Step>
bool wait_out(std::chrono::milliseconds time, const stop_token& stop, Step step) noexcept {
  const auto end = std::chrono::steady_clock::now() + time;
  for (;;) {
    if (stop.stop_requested()) return false;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left <= std::chrono::milliseconds::zero()) return true;
    step(std::min(left, wait_step));
  }
}

}  // namespace detail
}  // namespace tensorpull
