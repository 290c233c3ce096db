// Connects a TCP socket within a deadline, on the caller's thread.
#pragma once

#include <tensorpull/links/posix/posix_stream.hpp>
#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/std/stop_token.hpp>
#include <tensorpull/system/resolve.hpp>
#include <tensorpull/transports/over/tcp/detail/tcp_tuning.hpp>

#include <fcntl.h>

#include <utility>

namespace tensorpull {

namespace detail {

/// How long an address may be silent in each round of connect_any. The kernel asks again after 1, 3, 7 and 15 s, so
/// that a path that is restored would wait as long as it was gone. A new connect asks at once. Each fourth is for a
/// path whose round trip is longer than the others.
constexpr std::chrono::seconds patience_in_round(unsigned round) noexcept {
  return std::chrono::seconds(round % 4 == 3 ? 12 : 3);
}

/// Tries the addresses in turn, once. Each may be silent for `patience`, but not for more than an equal share of the
/// time that is left, so that one that does not answer leaves time for the others. connection_failed: ECONNREFUSED if
/// one has refused; else ETIMEDOUT if one was silent; else the last one's.
inline result<posix_stream> connect_once(const addrinfo* first, std::string_view address,
                                         std::chrono::steady_clock::time_point deadline, std::chrono::seconds patience,
                                         const stop_token& stop) noexcept {
  int last = ECONNREFUSED;
  std::int64_t addresses = 0;
  bool refused = false, silent = false;
  for (const addrinfo* a = first; a != nullptr; a = a->ai_next) ++addresses;
  for (const addrinfo* a = first; a != nullptr; a = a->ai_next, --addresses) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return failure(errc::timed_out, 0, address);
    const auto enough = now + std::min<std::chrono::steady_clock::duration>(patience, (deadline - now) / addresses);
    posix_stream s(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol));
    if (s.native_handle() < 0) {
      last = errno;
      continue;
    }
    if (::connect(s.native_handle(), a->ai_addr, a->ai_addrlen) == 0) {
      tune_connected(s.native_handle());
      return s;
    }
    if (errno != EINPROGRESS) {
      last = errno;
      refused = refused || last == ECONNREFUSED;
      continue;
    }
    bool answered = false;
    for (auto time = now; !answered && time < enough; time = std::chrono::steady_clock::now()) {
      if (stop.stop_requested()) return failure(errc::cancelled);
      answered = s.wait(false, true,
                        std::min<std::chrono::milliseconds>(
                            wait_step, std::chrono::ceil<std::chrono::milliseconds>(enough - time)))
                     .write;
    }
    last = answered ? connect_outcome(s.native_handle()) : ETIMEDOUT;
    if (last == 0) {
      tune_connected(s.native_handle());
      return s;
    }
    // on a network that has lost the machine, the kernel reports it after 3 s of silence
    silent = silent || last == ETIMEDOUT ||
             (last == EHOSTUNREACH && std::chrono::steady_clock::now() - now >= std::chrono::seconds(1));
    refused = refused || last == ECONNREFUSED;
  }
  if (refused) return failure(errc::connection_failed, 0, address, ECONNREFUSED);
  if (last == ETIMEDOUT && std::chrono::steady_clock::now() >= deadline) return failure(errc::timed_out, 0, address);
  if (silent) last = ETIMEDOUT;
  return failure(errc::connection_failed, 0, address, last);
}

/// Tries the addresses in rounds until one answers, or all of those that answer refuse.
inline result<posix_stream> connect_any(const addrinfo* first, std::string_view address,
                                        std::chrono::steady_clock::time_point deadline,
                                        const stop_token& stop) noexcept {
  for (unsigned round = 0;; ++round) {
    auto s = connect_once(first, address, deadline, patience_in_round(round), stop);
    if (s || s.error().code != errc::connection_failed || s.error().system != ETIMEDOUT) return s;
  }
}

}  // namespace detail

/// Connects to "host:port". Tries the host's addresses in turn, in rounds until `deadline`; one that does not answer
/// costs a round 3 s, and a longer one now and then. Resolving the host cannot be interrupted. Errors: bad_address,
/// unknown_host, connection_failed (with errno), timed_out, cancelled.
inline result<posix_stream> tcp_connect(std::string_view address, std::chrono::steady_clock::time_point deadline,
                                        const stop_token& stop = {}) noexcept {
  const auto parsed = parse_address(address);
  if (!parsed) return failure(parsed.error());
  if (stop.stop_requested()) return failure(errc::cancelled);
  const auto list = detail::resolve(*parsed, address, false);
  if (!list) return failure(list.error());
  return detail::connect_any(list->get(), address, deadline, stop);
}

/// The addresses of a host, for a program that connects to one after the other without waiting.
class tcp_addresses {
 public:
  /// Resolves "host:port", which blocks the caller's thread. Errors: bad_address, unknown_host.
  static result<tcp_addresses> of(std::string_view address) noexcept {
    const auto parsed = parse_address(address);
    if (!parsed) return failure(parsed.error());
    auto list = detail::resolve(*parsed, address, false);
    if (!list) return failure(list.error());
    return tcp_addresses(std::move(*list));
  }

  /// Whether an address is left.
  bool more() const noexcept { return next_ != nullptr; }
  /// Begins to connect to the next address, of which there is one, and does not wait for the other end; the stream's
  /// establish() is how it ends. Error: connection_failed (with errno).
  result<posix_stream> start_connect() noexcept {
    const addrinfo& a = *next_;
    next_ = a.ai_next;
    posix_stream s(::socket(a.ai_family, a.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a.ai_protocol), true);
    if (s.native_handle() < 0) return failure(errc::connection_failed, 0, {}, errno);
    if (::connect(s.native_handle(), a.ai_addr, a.ai_addrlen) != 0 && errno != EINPROGRESS)
      return failure(errc::connection_failed, 0, {}, errno);
    return s;
  }

 private:
  explicit tcp_addresses(detail::address_list list) noexcept : list_(std::move(list)), next_(list_.get()) {}
  detail::address_list list_;
  const addrinfo* next_;
};

}  // namespace tensorpull
