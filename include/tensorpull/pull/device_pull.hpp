// One pull that waits, for a device: no operating system, heap, threads or signals, and nothing is compiled that the
// program does not use. The clock, random numbers and what happens on a fault come from a platform. Hosts have
// transports/blocking/stream_pull.hpp, which also reports progress.
#pragma once

#include <tensorpull/chunking/concept.hpp>
#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/pull/platform.hpp>
#include <tensorpull/pull/stream_wire.hpp>
#include <tensorpull/std/chrono.hpp>
#include <tensorpull/transports/pull_options.hpp>

#include <type_traits>

namespace tensorpull {

namespace detail {

/// A stream whose answers are looked at before anybody relies on them. It borrows the stream.
template <platform P, byte_stream Stream>
class watched_stream {
 public:
  explicit watched_stream(Stream& stream) noexcept : stream_(&stream) {}

  io_result read_some(scatter_list spans) noexcept { return read(stream_->read_some(spans), spans); }
  io_result read_or_wait(scatter_list spans, std::chrono::milliseconds patience) noexcept
    requires requires(Stream& s) { s.read_or_wait(spans, patience); }
  {
    return read(stream_->read_or_wait(spans, patience), spans);
  }
  io_result write_some(gather_list spans) noexcept {
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
  static io_result read(io_result io, scatter_list spans) noexcept {
    if (io.bytes > bytes_of(spans))
      broken_contract<P>("byte_stream 1: read_some() gave more bytes than there was room for");
    if (io.bytes == 0 && io.status == io_status::ok)
      broken_contract<P>("byte_stream 1: read_some() gave nothing, and did not say why");
    return io;
  }
  Stream* stream_;
};

}  // namespace detail

/// Pulls into a consumer over connections of its own, and waits until it is done. `Parts` names the policies:
/// `platform`, `framing`, `chunking`, `integrity` and `limits`, and `resumes = false` if it never has a cursor.
/// `connect() -> result<Stream>` makes a connection each time that one is needed; `pause(time)` waits at most that
/// long, between two tries. `after_step()` is called after every step: a watchdog is fed there, a cursor is saved. None
/// of the three may throw. All state is on the stack: the transfer, an endpoint, and `limits::page_bytes` for an answer
/// that names tensors. It allocates nothing and has no owner role. Errors: those of `connect`, of the protocol, and of
/// the consumer; cancelled: the platform stopped it; `at` is how many bytes landed. A contract that the stream or the
/// platform breaks is the platform's panic.
template <class Parts, class Connect, class Pause, consumer Consumer, class AfterStep = detail::nothing_else>
result<receipt> device_pull_with(Connect connect, Pause pause, pull_request request, Consumer& to,
                                 const pull_options& options = {}, typename Parts::chunking chunking = {},
                                 AfterStep after_step = {}) noexcept {
  using platform_type = typename Parts::platform;
  static_assert(
      platform<platform_type>,
      "tensorpull: the parts of a device's pull name a platform: now(), random() and panic(), static and noexcept (pull/platform.hpp)");
  static_assert(!detail::adapts<typename Parts::chunking>,
                "tensorpull: a device's pull cuts chunks that do not adapt: use fixed_bytes<N> or bytes_up_to<Max>");
  if (!request.recipient) request.recipient = detail::random_recipient<platform_type>();
  detail::running_pull<Parts, Consumer> pull(request, to, options, chunking, 1);
  const auto watched = [](auto& stream) noexcept {
    return detail::watched_stream<platform_type, std::remove_reference_t<decltype(stream)>>(stream);
  };
  const auto besides = [&](const result<bool>&) noexcept { after_step(); };
  return detail::run_over_streams<Parts>(pull, connect, pause, watched, besides);
}

/// The same over one connected stream, which is borrowed. A lost connection or a time-out ends the pull; a busy owner
/// is waited for.
template <class Parts, byte_stream Stream, consumer Consumer, class AfterStep = detail::nothing_else>
result<receipt> device_pull_over(Stream& stream, const pull_request& request, Consumer& to,
                                 const pull_options& options = {}, typename Parts::chunking chunking = {},
                                 AfterStep after_step = {}) noexcept {
  using borrowed = detail::borrowed_stream<Stream>;
  pull_options once = options;
  once.retry.retries = 0;
  return device_pull_with<Parts>([&]() noexcept -> result<borrowed> { return borrowed{&stream}; },
                                 [&](std::chrono::milliseconds time) noexcept { stream.wait(false, false, time); },
                                 request, to, once, chunking, after_step);
}

}  // namespace tensorpull
