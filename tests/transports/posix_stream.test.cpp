// A socket that waits for many bytes at once must still hear few.
#include "support/threads.hpp"

#include <tensorpull/transports/over/tcp/tcp.hpp>

#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace tp = tensorpull;
using namespace std::chrono_literals;

namespace posix_stream_test {

struct ends {
  tp::posix_stream left, right;
};
ends connected() {
  auto listener = tp::tcp_listener::open("127.0.0.1:0");
  auto left = tp::tcp_connect("127.0.0.1:" + std::to_string(listener->port()), std::chrono::steady_clock::now() + 10s);
  auto right = listener->accept(10s);
  return {std::move(*left), std::move(*right)};
}
std::size_t write(tp::posix_stream& to, std::size_t bytes) {
  const std::vector<std::byte> data(bytes, std::byte{7});
  std::size_t sent = 0;
  while (sent < bytes) {
    const std::span<const std::byte> rest = std::span(data).subspan(sent);
    const auto io = to.write_some({&rest, 1});
    if (io.status != tp::io_status::ok) break;
    sent += io.bytes;
  }
  return sent;
}
std::size_t read_or_wait(tp::posix_stream& from, std::size_t most, std::chrono::milliseconds time) {
  std::vector<std::byte> room(most);
  const std::span<std::byte> all(room);
  return from.read_or_wait({&all, 1}, time).bytes;
}

TEST(PosixStream, A_read_of_many_bytes_takes_the_few_that_came) {
  auto [left, right] = connected();
  ASSERT_EQ(write(left, 10), 10u);
  EXPECT_EQ(read_or_wait(right, 256 * 1024, 50ms), 10u);
}

TEST(PosixStream, A_read_of_many_bytes_waits_for_more_than_the_packets_that_come_first) {
  auto [left, right] = connected();
  ASSERT_EQ(write(left, 1000), 1000u);
  ASSERT_EQ(write(left, 200'000), 200'000u);
  EXPECT_GE(read_or_wait(right, 256 * 1024, 10s), 128u * 1024);
}

// A read that had taken a part of what was to come waited for 128 KiB more, so the last bytes of a chunk lay there
// until its time was over. Only time shows that: here each read has 2 s, and all that is asked for is sent in
// milliseconds.
TEST(PosixStream, A_read_that_has_taken_a_part_ends_with_the_rest) {
  constexpr auto time = 2s;
  for (const std::size_t all : {129u * 1024, 140u * 1024, 190u * 1024, 255u * 1024, 256u * 1024})
    for (const std::size_t part : {1000u, 63u * 1024, 100u * 1024, 127u * 1024}) {
      auto both = connected();
      auto &left = both.left, &right = both.right;
      const auto start = std::chrono::steady_clock::now();
      test::joined_thread reads([&] {
        for (std::size_t n = 0; n < all;) {
          const std::size_t now = read_or_wait(right, all - n, time);
          ASSERT_GT(now, 0u);
          n += now;
        }
      });
      ASSERT_EQ(write(left, part), part);
      int unread = 1;  // until the other thread has taken it
      while (unread > 0 && std::chrono::steady_clock::now() - start < time / 4) {
        ASSERT_EQ(::ioctl(right.native_handle(), FIONREAD, &unread), 0);
        std::this_thread::yield();
      }
      ASSERT_EQ(write(left, all - part), all - part);
      reads.join();
      EXPECT_LT(std::chrono::steady_clock::now() - start, time / 2) << part << " of " << all;
    }
}

TEST(PosixStream, A_wait_after_a_read_of_many_bytes_hears_a_single_one) {
  auto [left, right] = connected();
  ASSERT_EQ(write(left, 10), 10u);
  ASSERT_EQ(read_or_wait(right, 256 * 1024, 20ms), 10u);
  ASSERT_EQ(write(left, 1), 1u);
  EXPECT_TRUE(right.wait(true, false, 10s).read);
}

TEST(PosixStream, A_read_of_few_bytes_after_one_of_many_ends_with_the_first) {
  auto [left, right] = connected();
  ASSERT_EQ(write(left, 10), 10u);
  ASSERT_EQ(read_or_wait(right, 256 * 1024, 20ms), 10u);
  ASSERT_EQ(write(left, 1), 1u);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(read_or_wait(right, 512, 60s), 1u);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 30s);
}

TEST(PosixStream, What_it_waited_for_moves_and_leaves_with_the_descriptor) {
  auto [left, right] = connected();
  ASSERT_EQ(write(left, 10), 10u);
  ASSERT_EQ(read_or_wait(right, 256 * 1024, 20ms), 10u);
  tp::posix_stream moved(std::move(right)), assigned;
  assigned = std::move(moved);
  ASSERT_EQ(write(left, 1), 1u);
  EXPECT_TRUE(assigned.wait(true, false, 10s).read);
  EXPECT_EQ(read_or_wait(assigned, 256 * 1024, 20ms), 1u);
  const tp::posix_stream adopted(assigned.release());
  int low = 0;
  socklen_t size = sizeof low;
  ASSERT_EQ(::getsockopt(adopted.native_handle(), SOL_SOCKET, SO_RCVLOWAT, &low, &size), 0);
  EXPECT_EQ(low, 1);
}

TEST(PosixStream, A_program_that_asks_for_a_sign_of_life_itself_goes_on_to) {
  auto [left, right] = connected();
  const auto option = [fd = right.native_handle()](int level, int name) {
    int value = 0;
    socklen_t size = sizeof value;
    EXPECT_EQ(::getsockopt(fd, level, name, &value, &size), 0);
    return value;
  };
  const int on = 1, idle = 60;
  ASSERT_EQ(::setsockopt(right.native_handle(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on), 0);
  ASSERT_EQ(::setsockopt(right.native_handle(), IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle), 0);
  for (const bool due : {true, false}) {
    right.expect_bytes(due);
    EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_KEEPIDLE), 60);
  }
}

}  // namespace posix_stream_test
