// A TCP connection of lwIP as a byte_stream, for a device without POSIX. The program names lwIP's functions in a header
// of its own (README.md), so nothing of lwIP is needed to install or to compile the library.
#pragma once

#include <tensorpull/core/detail/replace.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/links/byte_stream.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace tensorpull {

/// The socket functions S of a small network stack, as static functions that do not throw. With lwIP each is one call
/// (README.md links to them). A socket is a number; below 0 there is none.
///  1. `S::open()` makes a socket for TCP that does not wait: its number, or a negative one;
///  2. `S::receive(socket, to, n)` and `S::transmit(socket, from, n)` move at most n bytes: how many; 0 from receive():
///     the other end has closed; negative: see 4;
///  3. `S::wait(socket, read, write, ms)` waits until a direction that is true can make progress or has failed, at most
///     `ms` milliseconds, and leaves true those that can. With both false it only waits;
///  4. `S::last_error()` is why the last call has failed: `S::would_block` if there was nothing to move,
///     `S::in_progress` if a connect is under way, or any other number;
///  5. `S::pending_error(socket)` is how a connect ended: 0, or a number as above;
///  6. `S::release(socket)` closes it.
/// And for connect(): `S::begin_connect(socket, address)` begins to connect to an address, whatever type that is: 0, or
/// a negative number and last_error(). Names that lwIP defines as macros (connect, recv, read, close and others) are
/// avoided here.
template <class S>
concept small_sockets = requires(int socket, void* to, const void* from, std::size_t n, bool& direction) {
  { S::open() } noexcept -> std::convertible_to<int>;
  { S::receive(socket, to, n) } noexcept -> std::convertible_to<int>;
  { S::transmit(socket, from, n) } noexcept -> std::convertible_to<int>;
  { S::wait(socket, direction, direction, socket) } noexcept;
  { S::last_error() } noexcept -> std::convertible_to<int>;
  { S::pending_error(socket) } noexcept -> std::convertible_to<int>;
  { S::release(socket) } noexcept;
  requires std::convertible_to<decltype(S::would_block), int> && std::convertible_to<decltype(S::in_progress), int>;
};

/// Owns a connected socket. One thread at a time. It allocates nothing; lwIP does, from its own pools. Without sendmsg
/// and readv each span is a call. A stack that has no memory left is a connection that is lost, so that another try may
/// find some: `io_result::system` has the stack's number.
template <small_sockets S>
class lwip_stream {
 public:
  /// Takes over a socket that is connected and does not wait.
  explicit lwip_stream(int socket) noexcept : socket_(socket) {}
  lwip_stream(lwip_stream&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
  lwip_stream& operator=(lwip_stream&& other) noexcept { return detail::replace(*this, std::move(other)); }
  ~lwip_stream() {
    if (socket_ >= 0) (void)S::release(socket_);
  }

  /// Connects, and waits at most `timeout` for it, in one call of the stack that nothing cuts short. Errors:
  /// connection_failed, with the stack's number; timed_out.
  template <class Address>
  static result<lwip_stream> connect_to(const Address& address, std::chrono::milliseconds timeout) noexcept {
    lwip_stream made(S::open());
    if (made.socket_ < 0) return failure(errc::connection_failed, 0, {}, S::last_error());
    if (S::begin_connect(made.socket_, address) >= 0) return made;
    if (const int why = S::last_error(); why != S::in_progress) return failure(errc::connection_failed, 0, {}, why);
    if (!made.wait(false, true, timeout).write) return failure(errc::timed_out);
    if (const int why = S::pending_error(made.socket_); why != 0) return failure(errc::connection_failed, 0, {}, why);
    return made;
  }

  /// The number of the socket.
  int native_handle() const noexcept { return socket_; }

  io_result read_some(scatter_list spans) noexcept {
    return each(spans, [this](std::span<std::byte> s) noexcept {
      return static_cast<int>(S::receive(socket_, s.data(), s.size()));
    });
  }
  io_result write_some(gather_list spans) noexcept {
    return each(spans, [this](std::span<const std::byte> s) noexcept {
      return static_cast<int>(S::transmit(socket_, s.data(), s.size()));
    });
  }
  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    const auto ms = static_cast<int>(std::max<std::int64_t>(0, std::min<std::int64_t>(timeout.count(), 1 << 30)));
    io_ready ready{read, write};
    S::wait(socket_, ready.read, ready.write, ms);
    return {ready.read && read, ready.write && write};
  }

 private:
  /// One call for each span, until one of them moves less than the whole.
  template <class Byte, class Call>
  static io_result each(std::span<const std::span<Byte>> spans, Call call) noexcept {
    std::size_t moved = 0;
    for (const auto& s : spans) {
      if (s.empty()) continue;
      // the stack counts in int
      const auto part = s.first(std::min<std::size_t>(s.size(), 1u << 30));
      const int n = call(part);
      if (n > 0) moved += static_cast<std::size_t>(n);
      else if (moved > 0) break;  // the next call returns it again
      else if (n == 0) return {std::is_const_v<Byte> ? io_status::would_block : io_status::closed, 0, 0};
      else {
        const int why = S::last_error();
        return why == S::would_block ? io_result{io_status::would_block, 0, 0} : io_result{io_status::closed, why, 0};
      }
      if (static_cast<std::size_t>(n) < s.size()) break;
    }
    return {moved > 0 ? io_status::ok : io_status::would_block, 0, moved};
  }

  int socket_;
};

}  // namespace tensorpull
