// A tty of Linux as a byte device: a serial port, an adapter on USB, one end of a pseudo-terminal.
#pragma once

#include <tensorpull/core/detail/replace.hpp>
#include <tensorpull/links/posix/posix_stream.hpp>
#include <tensorpull/links/posix/wait.hpp>
#include <tensorpull/links/serial/byte_device.hpp>
#include <tensorpull/transports/over/serial/serial_address.hpp>

#include <sys/file.h>
#include <sys/ioctl.h>
#include <termios.h>

namespace tensorpull {

/// Owns an open tty, in raw mode and for itself. One thread at a time. The destructor waits at most 0.1 s for what is
/// still to be sent, and restores the settings that the tty had. A tty that vanishes (an adapter that is pulled out) is
/// `closed`.
class serial_port {
 public:
  serial_port(serial_port&& other) noexcept = default;
  serial_port& operator=(serial_port&& other) noexcept { return detail::replace(*this, std::move(other)); }
  ~serial_port() {
    const int fd = tty_.native_handle();
    if (fd < 0) return;
    // close() would wait for the line itself, for half a minute if the other end takes nothing
    for (int left = 0, tries = 0; tries < 20 && ::ioctl(fd, TIOCOUTQ, &left) == 0 && left > 0; ++tries)
      detail::pause(std::chrono::milliseconds(5));
    (void)::tcflush(fd, TCOFLUSH);
    (void)::tcsetattr(fd, TCSANOW, &before_);
    (void)::ioctl(fd, TIOCNXCL);
  }

  /// Opens the tty and sets its line. Does not wait. bad_address: it is no tty. connection_failed with errno: it is not
  /// there, may not be opened, cannot be set so (EINVAL), or another program has it (EBUSY). Exclusive by TIOCEXCL,
  /// which the superuser passes, and by flock(), which other programs may not ask.
  static result<serial_port> open(const serial_address& where) noexcept {
    const auto failed = [&](int system) {
      return failure(errc::connection_failed, 0, std::string_view(where.path.data()), system);
    };
    posix_stream tty(::open(where.path.data(), O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
    const int fd = tty.native_handle();
    if (fd < 0) return failed(errno);
    ::termios before{};
    if (::tcgetattr(fd, &before) != 0) return failure(errc::bad_address, 0, std::string_view(where.path.data()), errno);
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) return failed(errno == EWOULDBLOCK ? EBUSY : errno);
    serial_port port(std::move(tty), before);
    ::termios now = before, set{};
    ::cfmakeraw(&now);
    now.c_lflag &= ~static_cast<tcflag_t>(TOSTOP);  // no write raises a signal
    now.c_iflag &= ~static_cast<tcflag_t>(IXOFF | IXANY);
    now.c_cflag &= ~static_cast<tcflag_t>(CSTOPB | CRTSCTS);
    now.c_cflag |= CREAD | CLOCAL | (where.rts_cts ? CRTSCTS : 0);
    now.c_cc[VMIN] = 1;
    now.c_cc[VTIME] = 0;
    const ::speed_t speed = detail::speed_code(where.speed);
    if (::cfsetspeed(&now, speed) != 0 || ::tcsetattr(fd, TCSANOW, &now) != 0) return failed(errno);
    // tcsetattr() succeeds if any of it could be set
    if (::tcgetattr(fd, &set) != 0 || ::cfgetospeed(&set) != speed ||
        (set.c_cflag & CRTSCTS) != (now.c_cflag & CRTSCTS))
      return failed(EINVAL);
    if (::ioctl(fd, TIOCEXCL) != 0) return failed(errno);
    return port;
  }

  /// The descriptor.
  int native_handle() const noexcept { return tty_.native_handle(); }
  io_result read(std::span<std::byte> memory) noexcept {
    return detail::io_outcome(::read(native_handle(), memory.data(), memory.size()), true);
  }
  io_result write(std::span<const std::byte> bytes) noexcept {
    return detail::io_outcome(::write(native_handle(), bytes.data(), bytes.size()), false);
  }
  io_ready wait(bool read, bool write, std::chrono::milliseconds timeout) noexcept {
    return tty_.wait(read, write, timeout);
  }

 private:
  serial_port(posix_stream tty, const ::termios& before) noexcept : tty_(std::move(tty)), before_(before) {}

  posix_stream tty_;  // owns the descriptor, and waits for it
  ::termios before_;
};

static_assert(byte_device<serial_port>);

}  // namespace tensorpull
