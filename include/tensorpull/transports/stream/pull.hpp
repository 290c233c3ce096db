// One pull over one or more connections: watches the stop token and the time-out of each request, retries, reports
// progress, updates the cursor.
#pragma once

#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/links/pump.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>
#include <tensorpull/protocol/recipient/transfer.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/optional.hpp>
#include <tensorpull/system/entropy.hpp>
#include <tensorpull/transports/concept.hpp>
#include <tensorpull/transports/detail/progress_report.hpp>
#include <tensorpull/transports/pull_options.hpp>
#include <tensorpull/transports/stream/wait.hpp>

#include <array>
#include <concepts>
#include <string_view>
#include <utility>

namespace tensorpull {

namespace detail {

/// A deadline that only progress moves: at least `step` bytes, or an answer to a request.
class progress_deadline {
 public:
  using clock = std::chrono::steady_clock;

  template <class Transfer>
  void note(const Transfer& t, std::uint64_t step) noexcept {
    if (t.landed_bytes() < landed_ + step && t.answers() == answers_) return;
    landed_ = t.landed_bytes();
    answers_ = t.answers();
    start_ = clock::now();
  }
  void restart() noexcept { start_ = clock::now(); }
  /// The time left of `budget`. Computed by subtraction, so that even the largest budget does not overflow.
  std::chrono::milliseconds left(std::chrono::milliseconds budget) const noexcept {
    const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - start_);
    return spent >= budget ? std::chrono::milliseconds::zero() : budget - spent;
  }

 private:
  std::uint64_t landed_ = 0;
  clock::time_point start_ = clock::now();
  std::uint32_t answers_ = 0;
};

/// Tells a chunking that adapts how much time passes. Others need no time, and take no memory here.
template <class Chunking>
class chunk_pace {
 public:
  static void restart() noexcept {}
};
template <adapts Chunking>
class chunk_pace<Chunking> {
 public:
  void restart() noexcept { since_ = std::chrono::steady_clock::now(); }
  template <class Transfer>
  void note(Transfer& t) noexcept {
    const auto before = since_;
    since_ = std::chrono::steady_clock::now();
    t.measured(since_ - before);
  }

 private:
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

/// The chunk length that progress is measured against.
template <class Chunking>
constexpr std::uint64_t chunk_length_of(const Chunking& c) noexcept {
  if constexpr (requires { c.chunk_bytes; }) return c.chunk_bytes;
  else return Chunking::max_chunk_bytes != 0 ? Chunking::max_chunk_bytes : default_chunk_bytes;
}

struct nothing_else {
  constexpr void operator()() const noexcept {}
};

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

/// One pull into a consumer: the transfer, and what outlives each of its connections (tries, the time given to a busy
/// owner, progress, the cursor). Borrows the consumer and the options. `Transfer`: over a stream if nothing is said.
template <class Parts, class Consumer, class Transfer = typename transfer_of<Parts, Consumer>::type>
class running_pull {
 public:
  using chunking_type = typename Parts::chunking;
  using transfer_type = Transfer;

  /// `first_id`: the connection's next_id(), 1 for a new connection. `me`: the recipient, if the options name none.
  running_pull(const reference& ref, Consumer& to, const pull_options& options, const chunking_type& chunking,
               std::uint32_t first_id, recipient_id me = {}) noexcept
      : t_(to, asked_by(me, make_request(ref, options)), chunking, first_id), options_(options),
        step_bytes_(chunk_length_of(chunking) / 64 + 1),
        resumed_(options.cursor != nullptr && t_.resume(*options.cursor)),
        tries_(options.retry, options.per_request_timeout, t_.landed_bytes()) {}

  transfer_type& transfer() noexcept { return t_; }
  bool ended() const noexcept { return t_.ended(); }
  void fail(const error& why) noexcept { t_.fail(why); }

  /// Reports progress and updates the cursor; called after every step.
  void note() noexcept {
    report_.note(t_, options_);
    if constexpr (adapts<chunking_type>) pace_.note(t_);
    const auto chunks = static_cast<std::uint32_t>(t_.chunks());
    if (std::exchange(chunks_, chunks) != chunks) keep_cursor();
  }
  /// Whether a stop was requested. If so, the transfer has failed with `cancelled`.
  bool stopped() noexcept {
    if (!options_.stop.stop_requested()) return false;
    if (options_.stop_reason != nullptr) t_.give_reason(*options_.stop_reason);
    t_.fail({errc::cancelled, 0, 0, {}});
    return true;
  }

  /// Begins a try over a connection.
  template <class Endpoint>
  void begin(Endpoint& end) noexcept {
    end.begin_pull();
    deadline_.restart();
    pace_.restart();
  }
  /// Why this try is over, although the transfer has not ended; nothing while it goes on. Called after every step.
  optional<error> judge() noexcept {
    deadline_.note(t_, step_bytes_);
    if (t_.ended()) return {};
    if (t_.pause().count() > 0) return error{errc::busy, 0, 0, {}};
    if (left() <= left().zero())
      return error{errc::timed_out, 0, 0, {}};  // even if bytes came: a peer that sends single bytes makes no progress
    return {};
  }
  /// The time since the last step was ours: it does not count against the owner.
  void excuse() noexcept { deadline_.restart(); }
  /// The time that is left for progress.
  std::chrono::milliseconds left() const noexcept { return deadline_.left(options_.per_request_timeout); }
  /// Ends a try, and says goodbye if the transfer has ended and the owner has to know. True: there is something to
  /// send.
  template <class Endpoint>
  [[gnu::noinline]] bool finish(Endpoint& end) noexcept {
    end.end_pull(t_);
    if (!t_.ended()) return false;
    const auto bye = t_.farewell();
    return bye && end.send_control(*bye);
  }

  /// Moves bytes until the transfer has ended (no value), or until an error after which another try may succeed.
  /// `broken`: set if the connection cannot be used any more. `besides()`: called after every step.
  template <class Endpoint, byte_stream Stream, class Besides = nothing_else>
  [[gnu::noinline]] optional<error> drive(Endpoint& end, Stream& stream, std::span<std::byte> scratch,
                                          optional<error>& broken, Besides besides = {}) noexcept {
    optional<error> why;
    begin(end);
    while (!t_.ended() && !why && !stopped()) {
      const auto did = pump_once(end, t_, stream, scratch, wait_step);
      note();
      besides();
      if (!did) {
        broken = why = did.error();
        if (!is_passing(why->code)) t_.fail(*why), why = {};
        break;
      }
      why = judge();
      if (t_.ended() || why || did->received > 0 || did->sent > 0 || did->works || did->waited) continue;
      stream.wait(did->wants_read, did->wants_write, std::min(wait_step, left()));
    }
    if (finish(end) && !broken) take_leave(end, stream, scratch);
    return why;
  }

  /// How long to wait before another try; nothing if there is none: the transfer has failed with `why`.
  [[gnu::noinline]] optional<std::chrono::milliseconds> try_again(const error& why) noexcept {
    const auto wait = tries_.after(why.code, t_.landed_bytes(), t_.pause(), system_entropy{}());
    if (!wait) t_.fail(why);
    return wait;
  }

  [[gnu::noinline]] result<receipt> outcome() noexcept {
    keep_cursor();
    const auto how = t_.outcome();
    report_.ended(t_, options_, how);
    return how;
  }

 private:
  /// Sends the goodbye, if the connection takes it at once.
  template <class Endpoint, byte_stream Stream>
  [[gnu::noinline]] void take_leave(Endpoint& end, Stream& stream, std::span<std::byte> scratch) noexcept {
    (void)pump_once(end, t_, stream, scratch);
  }
  static pull_request asked_by(recipient_id me, pull_request request) noexcept {
    if (!request.recipient) request.recipient = me;
    return request;
  }
  /// Whether the owner has another version now, so that the cursor is of no use.
  bool stale() const noexcept {
    if (!t_.ended()) return false;
    const auto how = t_.outcome();
    return !how && how.error().code == errc::stale_version;
  }
  /// If the owner was never reached, the cursor stays as it was.
  void keep_cursor() noexcept {
    if (options_.cursor != nullptr && (t_.total_bytes() != 0 || !resumed_ || stale())) *options_.cursor = t_.cursor();
  }

  transfer_type t_;  // first, because a digest may have to lie at a multiple of 64 bytes
  const pull_options& options_;
  std::uint64_t step_bytes_;  // progress that counts: 1/64 of a chunk
  std::uint32_t chunks_ = 0;  // the count's lower half: it is looked at after every step
  bool resumed_;
  retry_state tries_;
  progress_report report_;
  progress_deadline deadline_;
  [[no_unique_address]] chunk_pace<chunking_type> pace_;
};
/// memory_bound counts a pull as its transfer, its buffers and this.
template <class Pull>
inline constexpr bool keeps_as_much_as_stated = sizeof(Pull) + sizeof(buffer_pool<>) <=
                                                sizeof(typename Pull::transfer_type) + pull_bookkeeping_bytes;

/// A stream that the caller owns and closes.
template <byte_stream Stream>
struct borrowed_stream {
  Stream* to;
  io_result read_some(std::span<const std::span<std::byte>> s) noexcept { return to->read_some(s); }
  io_result write_some(std::span<const std::span<const std::byte>> s) noexcept { return to->write_some(s); }
  io_ready wait(bool read, bool write, std::chrono::milliseconds t) noexcept { return to->wait(read, write, t); }
  auto take_descriptors() noexcept
    requires requires(Stream& s) { s.take_descriptors(); }
  {
    return to->take_descriptors();
  }
};

/// A random number by which the owner tells this recipient from others.
inline recipient_id random_recipient() noexcept {
  recipient_id me{};
  while (!me) me = {system_entropy{}()};
  return me;
}

/// What a transport over streams does to have a connection (stream_transport.hpp, 1).
template <class Transport, class Stream>
concept connects = requires(std::string_view address, std::chrono::milliseconds timeout, const stop_token& stop) {
  { Transport::connect(address, timeout, stop) } noexcept -> std::same_as<result<Stream>>;
};

/// An address that is more than text: an object that makes the connection itself, as tls_address and proxied_address
/// do.
template <class Address, class Stream>
concept dials = requires(const Address& to, std::chrono::milliseconds timeout, const stop_token& stop) {
  { to.connect(timeout, stop) } noexcept -> std::same_as<result<Stream>>;
};

}  // namespace detail

/// Pulls into a consumer over connections of its own. It has no owner role and allocates nothing; all state is on the
/// stack. `connect() -> result<Stream>` makes a connection each time that one is needed; `pause(time)` waits at most
/// that long. What has landed stays when a connection is lost. A connection that cannot be made is tried again as
/// `options.retry` says, the first one too; an error such as bad_address is final. Errors: those of `connect`, of the
/// protocol, and of the consumer; `at` says how many bytes landed. Leave out the last argument: its type makes the
/// compiler say what a consumer lacks.
template <class Parts, class Connect, class Pause, class Consumer>
result<receipt> pull_with(Connect connect, Pause pause, const reference& ref, Consumer& to,
                          const pull_options& options = {}, typename Parts::chunking chunking = {},
                          detail::consumer_checks<Consumer> = {}) noexcept {
  if constexpr (!consumer<Consumer>) return failure(errc::bad_address);  // refused by the last argument
  else {
    using limits = typename Parts::limits;
    ignore_messages handler;
    static_assert(detail::keeps_as_much_as_stated<detail::running_pull<Parts, Consumer>>);
    detail::running_pull<Parts, Consumer> pull(ref, to, options, chunking, 1,
                                               options.recipient ? options.recipient : detail::random_recipient());
    const auto again = [&](const error& why) noexcept {
      if (pull.ended()) return false;
      const auto delay = pull.try_again(why);
      if (!delay) return false;
      if (!detail::wait_out(*delay, options.stop, pause)) pull.fail({errc::cancelled, 0, 0, {}});
      pull.transfer().restart();
      return !pull.ended();
    };
    while (!pull.ended()) {
      optional<error> why, broken;
      if (auto stream = connect(); !stream) {
        why = stream.error();
      } else {
        no_owner none;
        // for the names of a subset, and for pages of the owner's schema if the schemas differ
        alignas(8) std::array<std::byte, limits::page_bytes> memory;
        buffer_pool<> pool(memory, memory.size());
        endpoint<typename Parts::framing, limits, no_owner, ignore_messages> end(none, pool, handler);
        do {  // a busy owner is asked again over the same connection, which may be in the middle of a frame
          why = pull.drive(end, *stream, {}, broken);
        } while (why && why->code == errc::busy && again(*why));
      }
      if (!why || !again(*why)) break;
    }
    return pull.outcome();
  }
}

/// The same over one connected stream, which is borrowed. A lost connection or a time-out ends the pull.
template <class Parts, byte_stream Stream, class Consumer>
result<receipt> pull_over(Stream& stream, const reference& ref, Consumer& to, const pull_options& options = {},
                          typename Parts::chunking chunking = {}, detail::consumer_checks<Consumer> = {}) noexcept {
  if constexpr (!consumer<Consumer>) return failure(errc::bad_address);  // refused by the last argument
  else {
    pull_options once = options;
    once.retry.retries = 0;
    const auto connect = [&]() -> result<detail::borrowed_stream<Stream>> {
      return detail::borrowed_stream<Stream>{&stream};
    };
    return pull_with<Parts>(
        connect, [&](std::chrono::milliseconds time) { stream.wait(false, false, time); }, ref, to, once, chunking);
  }
}

}  // namespace tensorpull
