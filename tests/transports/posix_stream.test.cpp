// A socket that waits for many bytes at once must still hear few.
#include <tensorpull/transports/over/tcp/tcp.hpp>

#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace tp = tensorpull;
using namespace std::chrono_literals;

namespace posix_stream_test {

/// What the kernel says of TCP sockets; none: the truth.
std::optional<tcp_info> told;

// In the place of the C library's.
extern "C" int getsockopt(int fd, int level, int name, void* value, socklen_t* size) noexcept {
  if (!told || level != IPPROTO_TCP || name != TCP_INFO)
    return static_cast<int>(::syscall(SYS_getsockopt, fd, level, name, value, size));
  *size = std::min<socklen_t>(*size, sizeof *told);
  std::memcpy(value, &*told, *size);
  return 0;
}

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
      std::jthread reads([&] {
        for (std::size_t n = 0; n < all;) {
          const std::size_t now = read_or_wait(right, all - n, time);
          ASSERT_GT(now, 0u);
          n += now;
        }
      });
      ASSERT_EQ(write(left, part), part);
      int unread = 1;  // until the other thread has taken it
      for (int i = 0; i < 1000 && unread > 0; ++i) {
        ASSERT_EQ(::ioctl(right.native_handle(), FIONREAD, &unread), 0);
        std::this_thread::sleep_for(100us);
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

// A session waits for minutes between two pulls; its line was taken for gone at the first wait of the next one.
TEST(PosixStream, Silence_before_bytes_are_due_does_not_count) {
  auto [left, right] = connected();
  std::this_thread::sleep_for(tp::detail::longest_silence + 1s);
  right.expect_bytes(true);
  EXPECT_FALSE(right.wait(true, false, 20ms).read);
  ASSERT_EQ(write(left, 10), 10u);
  EXPECT_EQ(read_or_wait(right, 100, 10s), 10u);
}

// An owner is silent for minutes, and is asked again then: a request that was on its way for a moment was taken for one
// that nobody acknowledges, if the program itself asks for signs of life, but seldom.
TEST(PosixStream, A_line_is_gone_if_what_was_sent_again_or_two_questions_are_not_answered_for_long) {
  constexpr auto longest = static_cast<std::uint32_t>(tp::detail::longest_silence.count());
  const auto line = [](std::uint32_t silent, std::uint8_t again, std::uint8_t asked) {
    tcp_info of{};
    of.tcpi_unacked = asked == 0;
    of.tcpi_retransmits = again;
    of.tcpi_probes = asked;
    of.tcpi_last_ack_recv = of.tcpi_last_data_recv = silent;
    return of;
  };
  const struct {
    tcp_info of;
    bool gone;
  } cases[]{{line(longest + 1, 0, 0), false}, {line(longest + 1, 0, 1), false}, {line(longest, 3, 0), false},
            {line(longest, 0, 3), false},     {line(longest + 1, 1, 0), true},  {line(longest + 1, 0, 2), true}};
  auto [left, right] = connected();
  for (const auto& c : cases) {
    told = c.of;
    EXPECT_EQ(tp::detail::line_is_gone(right.native_handle()), c.gone) << &c - cases;
    told.reset();
  }
  right.expect_bytes(true);
  std::this_thread::sleep_for(tp::detail::longest_silence + 1s);
  EXPECT_FALSE(right.wait(true, false, 1ms).read);
  told = line(longest + 1, 1, 0);
  EXPECT_TRUE(right.wait(true, false, 1ms).read);
  told.reset();
  std::byte one{};
  const std::span<std::byte> room(&one, 1);
  const auto io = right.read_some({&room, 1});
  EXPECT_EQ(io.status, tp::io_status::closed);
  EXPECT_EQ(io.system, ETIMEDOUT);
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
