// One pull that waits, for a device: no operating system, heap, threads or signals, and nothing is compiled that the
// program does not use. The clock, random numbers and what happens on a fault come from a platform. Hosts have
// transports/stream/pull.hpp, which also reports progress.
#pragma once

#include <tensorpull/chunking/concept.hpp>
#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/consumers/resume_cursor.hpp>
#include <tensorpull/core/buffer_pool.hpp>
#include <tensorpull/drivers/platform.hpp>
#include <tensorpull/links/pump.hpp>
#include <tensorpull/protocol/connection/endpoint.hpp>
#include <tensorpull/protocol/recipient/transfer.hpp>
#include <tensorpull/protocol/retry.hpp>
#include <tensorpull/protocol/roles.hpp>
#include <tensorpull/std/algorithm.hpp>
#include <tensorpull/std/optional.hpp>

#include <array>
#include <utility>

namespace tensorpull {

/// How a device pulls. What it points to must live until the pull has ended.
struct device_pull_options {
  /// How long a request may take without progress: the time starts anew with each answer and with each 1/64 of a chunk
  /// that has landed.
  std::chrono::milliseconds per_request_timeout = std::chrono::seconds(60);
  /// How often to try again after a connection that cannot be made, is lost or times out, and after a busy owner. What
  /// has landed stays.
  retry_policy retry{};
  /// Where this transfer stands; updated with each chunk. If it fits what is published and the consumer's memory holds
  /// what it says, the pull goes on from there. Otherwise it begins at byte 0. Parts with `static constexpr bool
  /// resumes = false` compile nothing of it, which saves code and 4 KiB of stack.
  resume_cursor* cursor = nullptr;
};

namespace detail {

/// A stream whose answers are looked at before anybody relies on them. It borrows the stream.
template <platform P, byte_stream Stream>
class watched_stream {
 public:
  explicit watched_stream(Stream& stream) noexcept : stream_(&stream) {}

  io_result read_some(std::span<const std::span<std::byte>> spans) noexcept {
    return read(stream_->read_some(spans), spans);
  }
  io_result read_or_wait(std::span<const std::span<std::byte>> spans, std::chrono::milliseconds patience) noexcept
    requires requires(Stream& s) { s.read_or_wait(spans, patience); }
  {
    return read(stream_->read_or_wait(spans, patience), spans);
  }
  io_result write_some(std::span<const std::span<const std::byte>> spans) noexcept {
    const io_result io = stream_->write_some(spans);
    if (io.bytes > bytes_of(spans))
      broken_contract<P>("byte_stream 2: write_some() took more bytes than it was offered");
    return io;
  }
  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    return stream_->wait(read, write, timeout);
  }

 private:
  template <class Span>
  static std::size_t bytes_of(std::span<const Span> spans) noexcept {
    std::size_t n = 0;
    for (const auto& s : spans) n += s.size();
    return n;
  }
  static io_result read(io_result io, std::span<const std::span<std::byte>> spans) noexcept {
    if (io.bytes > bytes_of(spans))
      broken_contract<P>("byte_stream 1: read_some() gave more bytes than there was room for");
    if (io.bytes == 0 && io.status == io_status::ok)
      broken_contract<P>("byte_stream 1: read_some() gave nothing, and did not say why");
    return io;
  }
  Stream* stream_;
};

/// Whether a pull with these parts can go on from a cursor.
template <class Parts>
inline constexpr bool resumes = true;
template <class Parts>
  requires requires { Parts::resumes; }
inline constexpr bool resumes<Parts> = Parts::resumes;

/// One pull into a consumer: the transfer, and what outlives each of its connections.
template <class Parts, class Consumer>
class device_pull {
  using platform_type = typename Parts::platform;
  using chunking_type = typename Parts::chunking;
  static_assert(!adapts<chunking_type>,
                "tensorpull: a device's pull cuts chunks that do not adapt: use fixed_bytes<N> or bytes_up_to<Max>");

 public:
  using transfer_type = transfer<Consumer, chunking_type, typename Parts::integrity, typename Parts::limits>;

  device_pull(const pull_request& request, Consumer& to, const device_pull_options& options,
              const chunking_type& chunking) noexcept
      : t_(to, named(request), chunking, 1), options_(options), step_bytes_(chunk_bytes(chunking) / 64 + 1),
        resumed_(resume()), tries_(options.retry, options.per_request_timeout, t_.landed_bytes()) {}

  bool ended() const noexcept { return t_.ended(); }

  /// Moves bytes until the transfer has ended (no value), or until an error after which another try may succeed.
  /// `after_step()`: called after every step.
  template <class Endpoint, byte_stream Stream, class AfterStep>
  [[gnu::noinline]] optional<error> drive(Endpoint& end, Stream& from, AfterStep& after_step) noexcept {
    watched_stream<platform_type, Stream> stream(from);
    optional<error> why;
    bool broken = false;
    end.begin_pull();
    watch_.restart();
    while (!t_.ended() && !why) {
      if (stopped<platform_type>()) {
        t_.fail({errc::cancelled, 0, 0, {}});
        break;
      }
      const auto did = pump_once(end, t_, stream, {}, device_wait_step);
      note();
      after_step();
      if (!did) {
        broken = true;
        if (is_passing(did.error().code)) why = did.error();
        else t_.fail(did.error());
        break;
      }
      if (t_.ended()) break;
      if (t_.pause().count() > 0) why = error{errc::busy, 0, 0, {}};
      else if (watch_.left(options_.per_request_timeout).count() == 0)
        why = error{errc::timed_out, 0, 0, {}};  // even if bytes came: single bytes are no progress
      else if (did->received == 0 && did->sent == 0 && !did->works && !did->waited)
        stream.wait(did->wants_read, did->wants_write,
                    std::min(device_wait_step, watch_.left(options_.per_request_timeout)));
    }
    end.end_pull(t_);
    if (t_.ended() && !broken)
      if (const auto bye = t_.farewell(); bye && end.send_control(*bye)) (void)pump_once(end, t_, stream, {});
    return why;
  }

  /// Waits before another try. False: there is none, and the transfer has failed.
  template <class Pause>
  [[gnu::noinline]] bool again(const error& why, Pause& pause) noexcept {
    if (t_.ended()) return false;
    const auto delay = tries_.after(why.code, t_.landed_bytes(), t_.pause(), platform_type::random());
    if (!delay) return t_.fail(why), false;
    for (stopwatch<platform_type> waited; waited.left(*delay).count() > 0;) {
      if (stopped<platform_type>()) return t_.fail({errc::cancelled, 0, 0, {}}), false;
      pause(std::min(device_wait_step, waited.left(*delay)));
    }
    t_.restart();
    return true;
  }

  [[gnu::noinline]] result<receipt> outcome() noexcept {
    keep_cursor();
    return t_.outcome();
  }

 private:
  static pull_request named(pull_request request) noexcept {
    // 0 is no number, and a source that gives it again and again is broken
    for (int i = 0; !request.recipient; ++i) {
      if (i == 4) broken_contract<platform_type>("platform::random() gives nothing but 0");
      request.recipient = {platform_type::random()};
    }
    return request;
  }
  bool resume() noexcept {
    if constexpr (resumes<Parts>) return options_.cursor != nullptr && t_.resume(*options_.cursor);
    else return false;
  }
  static constexpr std::uint64_t chunk_bytes(const chunking_type& c) noexcept {
    if constexpr (requires { c.chunk_bytes; }) return c.chunk_bytes;
    else return chunking_type::max_chunk_bytes != 0 ? chunking_type::max_chunk_bytes : default_chunk_bytes;
  }
  /// Looks at what has landed: the time of a request starts anew, and the cursor follows each chunk.
  void note() noexcept {
    if (t_.landed_bytes() >= landed_ + step_bytes_ || t_.answers() != answers_) {
      landed_ = t_.landed_bytes();
      answers_ = t_.answers();
      watch_.restart();
    }
    const auto chunks = static_cast<std::uint32_t>(t_.chunks());
    if (std::exchange(chunks_, chunks) != chunks) keep_cursor();
  }
  /// If the owner was never reached, the cursor stays as it was; if it has another version now, it is of no use.
  void keep_cursor() noexcept {
    if constexpr (resumes<Parts>) {
      if (options_.cursor == nullptr) return;
      const bool stale = t_.ended() && !t_.outcome() && t_.outcome().error().code == errc::stale_version;
      if (t_.total_bytes() != 0 || !resumed_ || stale) *options_.cursor = t_.cursor();
    }
  }

  transfer_type t_;  // first, because a digest may have to lie at a multiple of 64 bytes
  const device_pull_options& options_;
  std::uint64_t step_bytes_, landed_ = 0;
  std::uint32_t chunks_ = 0, answers_ = 0;
  bool resumed_;
  retry_state tries_;
  stopwatch<platform_type> watch_;
};

struct no_step {
  constexpr void operator()() const noexcept {}
};

}  // namespace detail

/// Pulls into a consumer over connections of its own, and waits until it is done. `Parts` names the policies:
/// `platform`, `framing`, `chunking`, `integrity` and `limits`, and `resumes = false` if it never has a cursor.
/// `connect() -> result<Stream>` makes a connection each time that one is needed; `pause(time)` waits at most that
/// long, between two tries. `after_step()` is called after every step: a watchdog is fed there, a cursor is saved. None
/// of the three may throw. All state is on the stack: the transfer, an endpoint, and `limits::page_bytes` for an answer
/// that names tensors. It allocates nothing and has no owner role. Errors: those of `connect`, of the protocol, and of
/// the consumer; cancelled: the platform said stop; `at` says how many bytes landed. A contract that the stream or the
/// platform breaks is the platform's panic.
template <class Parts, class Connect, class Pause, consumer Consumer, class AfterStep = detail::no_step>
result<receipt> device_pull_with(Connect connect, Pause pause, const pull_request& request, Consumer& to,
                                 const device_pull_options& options = {}, typename Parts::chunking chunking = {},
                                 AfterStep after_step = {}) noexcept {
  static_assert(
      platform<typename Parts::platform>,
      "tensorpull: the parts of a device's pull name a platform: now(), random() and panic(), static and noexcept (drivers/platform.hpp)");
  using limits = typename Parts::limits;
  ignore_messages handler;
  detail::device_pull<Parts, Consumer> pull(request, to, options, chunking);
  while (!pull.ended()) {
    optional<error> why;
    if (auto stream = connect(); !stream) {
      why = stream.error();
    } else {
      no_owner none;
      alignas(8) std::array<std::byte, limits::page_bytes> memory;
      buffer_pool<> pool(memory, memory.size());
      endpoint<typename Parts::framing, limits, no_owner, ignore_messages> end(none, pool, handler);
      do {  // a busy owner is asked again over the same connection, which may be in the middle of a frame
        why = pull.drive(end, *stream, after_step);
      } while (why && why->code == errc::busy && pull.again(*why, pause));
    }
    if (!why || !pull.again(*why, pause)) break;
  }
  return pull.outcome();
}

/// The same over one connected stream, which is borrowed. A lost connection or a time-out ends the pull; a busy owner
/// is waited for.
template <class Parts, byte_stream Stream, consumer Consumer, class AfterStep = detail::no_step>
result<receipt> device_pull_over(Stream& stream, const pull_request& request, Consumer& to,
                                 const device_pull_options& options = {}, typename Parts::chunking chunking = {},
                                 AfterStep after_step = {}) noexcept {
  /// A stream that the caller owns and closes.
  struct borrowed {
    Stream* to;
    io_result read_some(std::span<const std::span<std::byte>> s) noexcept { return to->read_some(s); }
    io_result write_some(std::span<const std::span<const std::byte>> s) noexcept { return to->write_some(s); }
    io_ready wait(bool read, bool write, std::chrono::milliseconds t) noexcept { return to->wait(read, write, t); }
  };
  device_pull_options once = options;
  once.retry.retries = 0;
  return device_pull_with<Parts>([&]() noexcept -> result<borrowed> { return borrowed{&stream}; },
                                 [&](std::chrono::milliseconds time) noexcept { stream.wait(false, false, time); },
                                 request, to, once, chunking, after_step);
}

}  // namespace tensorpull
