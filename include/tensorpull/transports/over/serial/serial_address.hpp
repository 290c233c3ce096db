// The address of a serial line, as users write it: "/dev/ttyUSB0?speed=115200&flow=rtscts".
#pragma once

#include <tensorpull/core/digits.hpp>
#include <tensorpull/core/result.hpp>
#include <tensorpull/std/algorithm.hpp>

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include <termios.h>

namespace tensorpull {

namespace detail {
struct serial_speed {
  std::uint32_t bits_per_second;
  ::speed_t code;
};
/// The speeds that every Linux knows.
inline constexpr std::array serial_speeds{
    serial_speed{1200, B1200},       serial_speed{2400, B2400},       serial_speed{4800, B4800},
    serial_speed{9600, B9600},       serial_speed{19200, B19200},     serial_speed{38400, B38400},
    serial_speed{57600, B57600},     serial_speed{115200, B115200},   serial_speed{230400, B230400},
    serial_speed{460800, B460800},   serial_speed{500000, B500000},   serial_speed{576000, B576000},
    serial_speed{921600, B921600},   serial_speed{1000000, B1000000}, serial_speed{1152000, B1152000},
    serial_speed{1500000, B1500000}, serial_speed{2000000, B2000000}, serial_speed{2500000, B2500000},
    serial_speed{3000000, B3000000}, serial_speed{3500000, B3500000}, serial_speed{4000000, B4000000}};

/// 0: there is no such speed.
constexpr ::speed_t speed_code(std::uint64_t bits_per_second) noexcept {
  for (const auto& s : serial_speeds)
    if (s.bits_per_second == bits_per_second) return s.code;
  return 0;
}
}  // namespace detail

/// A tty and how its line is set. A line has 8 data bits, no parity and one stop bit: the frames have a check of their
/// own.
struct serial_address {
  std::array<char, 256> path{};     ///< of the tty, zero-terminated
  std::uint32_t speed = 115'200;    ///< bits a second; a byte takes ten
  bool rts_cts = false;             ///< the device signals with a wire of its own (RTS, CTS) when it can take bytes
};

/// Accepts `path`, with `?` and settings behind it, in any order and joined by `&`: `speed=` a standard speed from 1200
/// to 4000000 bits a second (115200 if it is not given), `flow=none` or `flow=rtscts` (none). bad_address names the
/// text. XON/XOFF is refused: its two control bytes are bytes of a tensor, too.
inline result<serial_address> parse_serial_address(std::string_view text) noexcept {
  const auto refuse = [&] { return failure(errc::bad_address, 0, text); };
  serial_address out;
  const auto question = text.find('?');
  const std::string_view path = text.substr(0, question);
  if (path.empty() || path.size() >= out.path.size() || path.find('\0') != std::string_view::npos) return refuse();
  std::memcpy(out.path.data(), path.data(), path.size());
  if (question == std::string_view::npos) return out;
  bool has_speed = false, has_flow = false;
  for (std::string_view rest = text.substr(question + 1);;) {
    const auto end = rest.find('&');
    const std::string_view setting = rest.substr(0, end),
                           value = setting.substr(std::min(setting.find('=') + 1, setting.size()));
    if (setting.starts_with("speed=") && !std::exchange(has_speed, true)) {
      const auto speed = detail::decimal_number(value);
      if (!speed || detail::speed_code(*speed) == 0) return refuse();
      out.speed = static_cast<std::uint32_t>(*speed);
    } else if (setting.starts_with("flow=") && !std::exchange(has_flow, true)) {
      if (value != "none" && value != "rtscts") return refuse();
      out.rts_cts = value == "rtscts";
    } else return refuse();
    if (end == std::string_view::npos) return out;
    rest.remove_prefix(end + 1);
  }
}

}  // namespace tensorpull
