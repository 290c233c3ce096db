// A TCP socket's connection as Linux knows it: whether it carries anything, and how long its path is. Linux is told
// that much is about to arrive. Other sockets have no such record.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstdint>
#include <tensorpull/std/chrono.hpp>

namespace tensorpull::detail {

/// A TCP connection carries nothing any more if nothing has arrived for so long, although this end has asked for a sign
/// of life: with what it has sent and sends again, or, if all of that was taken, with the kernel's questions
/// (ask_silent_end). By then the kernel of the other end sends again every 6 s and more, so a new connection is sooner
/// there when the path is back.
inline constexpr std::chrono::milliseconds longest_silence{11'000};
/// Between two calls of a program that waits again and again for a short time.
inline constexpr std::chrono::milliseconds short_pause{2'000};

/// When the kernel asks a silent other end of a TCP connection if it is there: after so many seconds, and every so many
/// then.
struct signs_of_life {
  int after, every;
  friend bool operator==(const signs_of_life&, const signs_of_life&) = default;
};
/// Of any connection: nothing on its way forgets it, and with the 9 questions that Linux asks both ends know in less
/// than a minute that it is gone.
inline constexpr signs_of_life usual_signs{20, 4};
/// While bytes are due. The kernel gives the connection up on its own only after longest_silence.
inline constexpr signs_of_life due_signs{5, 2};

/// Errors are ignored: what is no TCP socket has no line.
inline void ask_silent_end(int fd, const signs_of_life& how) noexcept {
  const auto set = [&](int level, int option, int to) noexcept {
    (void)::setsockopt(fd, level, option, &to, sizeof to);
  };
  set(IPPROTO_TCP, TCP_KEEPIDLE, how.after);
  set(IPPROTO_TCP, TCP_KEEPINTVL, how.every);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
}
/// Whether the program has chosen itself when the kernel asks.
inline bool asks_as_program_wishes(int fd) noexcept {
  const auto get = [&](int level, int option) noexcept {
    int value = 0;
    socklen_t size = sizeof value;
    return ::getsockopt(fd, level, option, &value, &size) == 0 ? value : 0;
  };
  return get(SOL_SOCKET, SO_KEEPALIVE) != 0 &&
         signs_of_life{get(IPPROTO_TCP, TCP_KEEPIDLE), get(IPPROTO_TCP, TCP_KEEPINTVL)} != usual_signs;
}

/// Whether a TCP connection carries nothing any more: repeated bytes are not acknowledged, or two questions in a row
/// were not answered. Bytes that were sent once may have left just now, after a silence that is the other end's own. An
/// other end that takes no bytes now answers the questions, which then are seldom; so this is not TCP_USER_TIMEOUT,
/// which ends such a connection.
inline bool line_is_gone(int fd) noexcept {
  tcp_info of{};
  socklen_t size = sizeof of;
  return ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &of, &size) == 0 && (of.tcpi_retransmits > 0 || of.tcpi_probes >= 2) &&
         of.tcpi_last_ack_recv > longest_silence.count() && of.tcpi_last_data_recv > longest_silence.count();
}

/// Linux's record of a TCP socket, which is more than <netinet/tcp.h> knows.
struct tcp_facts : tcp_info {
  std::uint64_t rates_and_bytes[4];
  std::uint32_t segments[2], unsent_bytes;
  std::uint32_t least_round_trip;  ///< in microseconds
};

/// Whether the other end of a socket is near, by the least round trip: on this machine, or in this house. Sockets that
/// are not TCP's have both ends on one machine.
inline bool is_near(int fd) noexcept {
  tcp_facts of{};
  socklen_t size = sizeof of;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &of, &size) != 0) return true;
  return (size == sizeof of ? of.least_round_trip : of.tcpi_rtt) <= 1000;
}

/// Bytes that a socket may hold from its beginning if much is about to arrive. The kernel begins with 64 KiB, and makes
/// that more when it has seen how much is read in a round trip. Meanwhile the other end learns a rate that is too low.
/// From here on it follows the path as usual, up to net.ipv4.tcp_rmem. (The kernel takes half of that, if it is less.)
inline constexpr int far_receive_buffer = 4 << 20;

/// Called once for a connected socket that much is about to be read from, and whose other end is not near. SO_RCVBUF
/// would end the kernel's own measurements, but a low-water mark makes the buffer as long as itself and leaves them on.
/// Then the mark goes back. Errors are ignored, and so is every other kernel: only speed is lost.
inline void expect_much(int fd) noexcept {
  const int any = 1;
  (void)::setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &far_receive_buffer, sizeof far_receive_buffer);
  (void)::setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &any, sizeof any);
}

}  // namespace tensorpull::detail
