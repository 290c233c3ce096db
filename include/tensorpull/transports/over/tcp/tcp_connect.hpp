// Connects a TCP socket within a deadline, on the caller's thread.
#pragma once

#include <tensorpull/links/posix/posix_stream.hpp>
#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/std/stop_token.hpp>
#include <tensorpull/system/address.hpp>
#include <tensorpull/transports/over/tcp/detail/tcp_tuning.hpp>

#include <fcntl.h>
#include <netdb.h>

#include <utility>

namespace tensorpull {

namespace detail {

/// Owns the resolver's list. Not a std::unique_ptr, because <memory> takes long to compile.
class address_list {
 public:
  explicit address_list(addrinfo* list) noexcept : list_(list) {}
  address_list(address_list&& other) noexcept : list_(std::exchange(other.list_, nullptr)) {}
  ~address_list() {
    if (list_ != nullptr) ::freeaddrinfo(list_);
  }
  const addrinfo& operator*() const noexcept { return *list_; }
  const addrinfo* get() const noexcept { return list_; }

 private:
  addrinfo* list_;
};

/// Resolves with getaddrinfo on the caller's thread. This is the one call that neither a stop request nor the deadline
/// ends. Starts no thread.
inline result<address_list> resolve(const host_port& a, std::string_view text, bool to_listen) noexcept {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0);
  addrinfo* list = nullptr;
  const char* const host = a.host[0] != '\0' ? a.host.data() : nullptr;
  if (::getaddrinfo(host, a.port.data(), &hints, &list) != 0 || list == nullptr)
    return failure(errc::bad_address, 0, without_secrets(text));
  return address_list(list);
}

/// Tries the addresses in turn, each for an equal share of the time that is left, so that one that does not answer
/// leaves time for the others.
inline result<posix_stream> connect_any(const addrinfo* first, std::string_view address,
                                        std::chrono::steady_clock::time_point deadline,
                                        const stop_token& stop) noexcept {
  int last = ECONNREFUSED;
  std::int64_t addresses = 0;
  for (const addrinfo* a = first; a != nullptr; a = a->ai_next) ++addresses;
  for (const addrinfo* a = first; a != nullptr; a = a->ai_next, --addresses) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return failure(errc::timed_out, 0, address);
    const auto enough = now + (deadline - now) / addresses;
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
    last = ETIMEDOUT;
    if (!answered) continue;
    last = connect_outcome(s.native_handle());
    if (last == 0) {
      tune_connected(s.native_handle());
      return s;
    }
  }
  if (last == ETIMEDOUT && std::chrono::steady_clock::now() >= deadline) return failure(errc::timed_out, 0, address);
  return failure(errc::connection_failed, 0, address, last);
}

}  // namespace detail

/// Connects to "host:port". Tries the host's addresses in turn until `deadline`, each for an equal share of the time
/// that is left. Resolving the host cannot be interrupted. Errors: bad_address, connection_failed (with errno),
/// timed_out, cancelled.
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
  /// Resolves "host:port", which blocks the caller's thread. Error: bad_address.
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
  /// establish() says how it ends. Error: connection_failed (with errno).
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
