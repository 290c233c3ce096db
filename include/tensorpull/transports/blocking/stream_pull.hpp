// One pull over byte streams that waits on the caller's thread.
#pragma once

#include <tensorpull/consumers/receipt.hpp>
#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/pull/running_pull.hpp>
#include <tensorpull/pull/stream_wire.hpp>
#include <tensorpull/std/optional.hpp>
#include <tensorpull/transports/concept.hpp>
#include <tensorpull/transports/pull_options.hpp>

#include <concepts>
#include <string_view>

namespace tensorpull {

namespace detail {

/// A transport over streams makes connections (stream_transport.hpp, 1).
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
/// that long. Landed bytes stay when a connection is lost. A connection that cannot be made is tried again by
/// `options.retry`, the first one too; an error such as bad_address is final. Errors: those of `connect`, of the
/// protocol, and of the consumer; `at` is how many bytes landed. Leave out the last argument: its type makes the
/// compiler say what a consumer lacks.
template <class Parts, class Connect, class Pause, class Consumer>
result<receipt> pull_with(Connect connect, Pause pause, const reference& ref, Consumer& to,
                          const pull_options& options = {}, typename Parts::chunking chunking = {},
                          detail::consumer_checks<Consumer> = {}) noexcept {
  if constexpr (!consumer<Consumer>) return failure(errc::bad_address);  // refused by the last argument
  else {
    using pull_type = detail::running_pull<Parts, Consumer>;
    pull_type pull(ref, to, options, chunking, 1,
                   options.recipient ? options.recipient : detail::random_recipient<typename Parts::platform>());
    const auto plain = [](auto& stream) noexcept -> auto& { return stream; };
    const detail::nothing_else besides;
    return detail::run_over_streams<Parts>(pull, connect, pause, plain, besides);
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
    using borrowed = detail::borrowed_stream<Stream>;
    const auto connect = [&]() -> result<borrowed> { return borrowed{&stream}; };
    return pull_with<Parts>(
        connect, [&](std::chrono::milliseconds time) { stream.wait(false, false, time); }, ref, to, once, chunking);
  }
}

}  // namespace tensorpull
