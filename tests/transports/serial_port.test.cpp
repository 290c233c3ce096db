// Serial lines on pseudo-terminals: their addresses, their settings, who else may have them, and what happens when they
// vanish.
#include "support/noisy_line.hpp"
#include "support/results.hpp"

#include <tensorpull/links/serial/serial_link.hpp>
#include <tensorpull/transports/over/serial/serial_port.hpp>

#include <gtest/gtest.h>

#include <cstring>

namespace serial_port_test {

using namespace tensorpull;
using namespace std::chrono_literals;
using test::code_of;

result<serial_port> open(const std::string& text) {
  const auto where = parse_serial_address(text);
  return where ? serial_port::open(*where) : failure(where.error());
}

TEST(SerialAddress, A_path_alone_has_115200_bits_a_second_and_no_flow_control) {
  const auto a = parse_serial_address("/dev/ttyUSB0");
  ASSERT_TRUE(a);
  EXPECT_STREQ(a->path.data(), "/dev/ttyUSB0");
  EXPECT_EQ(a->speed, 115'200u);
  EXPECT_FALSE(a->rts_cts);
}
TEST(SerialAddress, Settings_stand_in_any_order) {
  for (const char* text : {"/dev/ttyS1?speed=9600&flow=rtscts", "/dev/ttyS1?flow=rtscts&speed=9600"}) {
    const auto a = parse_serial_address(text);
    ASSERT_TRUE(a) << text;
    EXPECT_STREQ(a->path.data(), "/dev/ttyS1");
    EXPECT_EQ(a->speed, 9600u);
    EXPECT_TRUE(a->rts_cts);
  }
  EXPECT_TRUE(parse_serial_address("x?flow=none"));
}
TEST(SerialAddress, What_is_no_address_is_refused_by_name) {
  using namespace std::string_view_literals;
  for (const std::string_view text :
       {""sv, "?speed=9600"sv, "/dev/a?"sv, "/dev/a?speed"sv, "/dev/a?speed="sv, "/dev/a?speed=9601"sv,
        "/dev/a?speed=0"sv, "/dev/a?speed=-9600"sv, "/dev/a?speed=9600x"sv, "/dev/a?speed=99999999999999"sv,
        "/dev/a?speed=9600&speed=9600"sv, "/dev/a?speed=9600&"sv, "/dev/a?flow=xonxoff"sv, "/dev/a?flow="sv,
        "/dev/a?parity=even"sv, "/dev/a\0b"sv}) {
    const auto a = parse_serial_address(text);
    EXPECT_EQ(code_of(a), errc::bad_address) << text;
  }
  EXPECT_FALSE(parse_serial_address(std::string(256, 'a')));
  EXPECT_TRUE(parse_serial_address(std::string(255, 'a')));
}

::termios settings_of(const std::string& path) {
  const posix_stream fd(::open(path.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  ::termios t{};
  EXPECT_EQ(::tcgetattr(fd.native_handle(), &t), 0) << std::strerror(errno);
  return t;
}
TEST(SerialPort, Every_speed_is_set_and_every_setting_is_restored) {
  test::pty p;
  const ::termios before = settings_of(p.path());
  for (const auto& speed : detail::serial_speeds) {
    {
      const auto port = open(p.path() + "?speed=" + std::to_string(speed.bits_per_second));
      ASSERT_TRUE(port) << speed.bits_per_second;
      ::termios now{};
      ASSERT_EQ(::tcgetattr(port->native_handle(), &now), 0);
      EXPECT_EQ(::cfgetospeed(&now), speed.code);
      EXPECT_EQ(::cfgetispeed(&now), speed.code);
      EXPECT_EQ(now.c_lflag & static_cast<tcflag_t>(ICANON | ECHO | ISIG | TOSTOP), 0u);
      EXPECT_EQ(now.c_iflag & static_cast<tcflag_t>(IXON | IXOFF | ICRNL | ISTRIP), 0u);
      EXPECT_EQ(now.c_oflag & static_cast<tcflag_t>(OPOST), 0u);
    }
    const ::termios after = settings_of(p.path());
    EXPECT_EQ(std::memcmp(&after, &before, sizeof after), 0) << speed.bits_per_second;
  }
}
TEST(SerialPort, One_program_has_a_line) {
  test::pty p;
  {
    const auto first = open(p.path());
    ASSERT_TRUE(first);
    const auto second = open(p.path());
    ASSERT_EQ(code_of(second), errc::connection_failed);
    EXPECT_EQ(second.error().system, EBUSY);
  }
  EXPECT_TRUE(open(p.path()));
}
TEST(SerialPort, What_is_no_tty_is_refused_by_name) {
  const auto code = [](const std::string& path) { return open(path).error().code; };
  EXPECT_EQ(code("/dev/null"), errc::bad_address);
  EXPECT_EQ(code("/dev/no-such-tty"), errc::connection_failed);
  EXPECT_EQ(code("/"), errc::connection_failed);
}
TEST(SerialPort, A_tty_that_vanishes_ends_the_link_and_no_wait_spins) {
  test::pty p;
  auto port = open(p.path());
  ASSERT_TRUE(port);
  serial_link<serial_port> link(std::move(*port));
  std::array<std::byte, 512> memory{};
  only_peer from;
  EXPECT_EQ(link.receive(memory, from).status, io_status::would_block);
  EXPECT_FALSE(link.wait(true, false, 1ms).read);
  p.vanish();
  EXPECT_TRUE(link.wait(true, false, 10s).read);
  EXPECT_EQ(link.receive(memory, from).status, io_status::closed);
  const std::span<const std::byte> some(memory);
  EXPECT_EQ(link.send({&some, 1}, from).status, io_status::closed);
  EXPECT_TRUE(link.wait(false, true, 10s).write);
}
TEST(SerialPort, A_tty_that_vanishes_while_a_frame_waits_ends_the_link) {
  test::pty p;
  auto port = open(p.path());
  ASSERT_TRUE(port);
  serial_link<serial_port> link(std::move(*port));
  std::array<std::byte, 512> memory{};
  const std::span<const std::byte> some(memory);
  while (link.send({&some, 1}, {}).status == io_status::ok || link.wait(false, true, 20ms).write) {
    // the kernel hands bytes on a little later
  }
  p.vanish();
  EXPECT_TRUE(link.wait(false, true, 10s).write);
  EXPECT_EQ(link.send({&some, 1}, {}).status, io_status::closed);
}
/// Frames that a line lost: those that the noise touched, and the one after each if the noise ran into it.
TEST(SerialPort, A_line_that_was_cut_is_in_step_within_one_frame) {
  test::noisy_line line;
  auto a = open(line.left()), b = open(line.right());
  ASSERT_TRUE(a && b);
  serial_link<serial_port> left(std::move(*a)), right(std::move(*b));
  std::array<std::byte, 100> datagram{};
  std::array<std::byte, 512> memory{};
  only_peer from;
  std::uint8_t mark = 0;
  const auto arrives = [&](std::chrono::milliseconds within) {  // a datagram that is sent now
    datagram.fill(std::byte{++mark});
    const std::span<const std::byte> all(datagram);
    EXPECT_EQ(left.send({&all, 1}, {}).status, io_status::ok);
    for (const auto end = std::chrono::steady_clock::now() + within; std::chrono::steady_clock::now() < end;) {
      (void)left.wait(false, false, 0ms);
      // one before it may be late, if nobody waited for it long
      if (right.receive(memory, from).status == io_status::ok && memory[99] == std::byte{mark}) {
        EXPECT_EQ(memory[0], memory[99]);
        return true;
      }
      right.wait(true, false, 2ms);
    }
    return false;
  };
  EXPECT_TRUE(arrives(20s));
  for (int round = 0; round < 3; ++round) {
    const std::uint64_t before = right.dropped();
    line.damage_next();
    (void)arrives(100ms);
    ASSERT_TRUE(test::eventually("the damage is done", [&] { return line.damaged(); }));
    (void)arrives(100ms);  // the one frame that may be lost: the damage may have been the zero before it
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(arrives(20s));
    EXPECT_LE(right.dropped(), before + 2);
    line.cut(true);
    EXPECT_FALSE(arrives(100ms));
    line.cut(false);
    (void)arrives(100ms);
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(arrives(20s));
  }
}

}  // namespace serial_port_test
