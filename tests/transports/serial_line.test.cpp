// A tty that comes and goes: the end that has connected is told, the end that listens goes on when it is there again.
#include "support/noisy_line.hpp"

#include <tensorpull/transports/over/serial/serial_line.hpp>

#include <gtest/gtest.h>

namespace serial_line_test {

using namespace tensorpull;
using namespace std::chrono_literals;
using line = serial_line<256>;

io_status received(line& l) {
  std::array<std::byte, 256> memory;
  only_peer from;
  return l.receive(memory, from).status;
}
io_status sent(line& l) {
  const std::array<std::byte, 20> datagram{std::byte{7}};
  const std::span<const std::byte> all(datagram);
  return l.send({&all, 1}, {}).status;
}
/// Whether a frame comes out at the other end of the tty.
bool arrives(const test::adapter& a) {
  std::array<char, 100> bytes;
  for (const auto end = test::within(200ms); !end.stop_requested(); test::look_again_soon())
    if (::read(a.master(), bytes.data(), bytes.size()) > 0) return true;
  return false;
}

TEST(SerialLine, Who_has_connected_hears_that_the_tty_is_gone) {
  test::adapter a;
  auto l = line::connect(a.name());
  ASSERT_TRUE(l);
  EXPECT_EQ(sent(*l), io_status::ok);
  a.pull_out();
  EXPECT_TRUE(l->wait(true, false, 10s).read);
  EXPECT_EQ(received(*l), io_status::closed);
  EXPECT_EQ(sent(*l), io_status::closed);
  EXPECT_FALSE(line::connect(a.name()));
}
TEST(SerialLine, Who_listens_goes_on_when_the_tty_is_there_again) {
  test::adapter a;
  auto l = line::open(a.name());
  ASSERT_TRUE(l);
  EXPECT_EQ(sent(*l), io_status::ok);
  EXPECT_TRUE(arrives(a));
  for (int round = 0; round < 2; ++round) {
    a.pull_out();
    int waits = 0, told = 0;
    for (const auto begin = std::chrono::steady_clock::now(); std::chrono::steady_clock::now() - begin < 500ms;
         ++waits) {
      told += l->wait(true, true, 50ms).read ? 1 : 0;
      EXPECT_EQ(received(*l), io_status::would_block);
      EXPECT_EQ(sent(*l), io_status::ok);  // and dropped
    }
    EXPECT_LE(told, 1);  // of the end of the tty
    EXPECT_LE(waits, 30);
    a.plug_in();
    bool again = false;
    for (int i = 0; i < 20 && !again; ++i) {
      (void)l->wait(true, false, 50ms);
      EXPECT_EQ(sent(*l), io_status::ok);
      again = arrives(a);
    }
    EXPECT_TRUE(again);
  }
}

}  // namespace serial_line_test
