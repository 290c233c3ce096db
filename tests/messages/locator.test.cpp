#include <tensorpull/messages/locator.hpp>

#include "support/allocation_counter.hpp"
#include "support/results.hpp"

#include <gtest/gtest.h>

#include <string>

namespace locator_test {

using namespace test;

constexpr tp::reference some{{0x0123456789abcdef, 0xfedcba9876543210}, 0x1111222233334444, 0x5555666677778888};
const std::string text = "tensorpull:0123456789abcdeffedcba9876543210/1111222233334444/5555666677778888";

tp::locator two_addresses() {
  tp::locator l(some);
  EXPECT_TRUE(l.add("10.0.0.7:8002"));
  EXPECT_TRUE(l.add("[fe80::1]:9"));
  return l;
}

TEST(Locator, Printed_text_is_parsed) {
  EXPECT_EQ(tp::to_text(tp::locator(some)).view(), text);
  EXPECT_EQ(tp::to_text(two_addresses()).view(), text + "@10.0.0.7:8002,[fe80::1]:9");
  for (const tp::locator& l : {tp::locator(some), two_addresses()}) {
    const auto back = tp::parse_locator(tp::to_text(l).view());
    ASSERT_TRUE(succeeded(back));
    EXPECT_EQ(*back, l);
  }
  const std::string longest(tp::locator::max_address_bytes - 6, 'a');
  tp::locator full(some);
  for (std::size_t i = 0; i < tp::locator::max_addresses; ++i) ASSERT_TRUE(full.add(longest + ":65535"));
  EXPECT_EQ(code_of(full.add("a:1")), tp::errc::table_full);
  EXPECT_EQ(tp::to_text(full).bytes, tp::locator::max_text_bytes);
  EXPECT_EQ(*tp::parse_locator(tp::to_text(full).view()), full);
}

TEST(Locator, Every_link_that_a_third_party_can_use_has_addresses_here) {
  tp::locator l(some);
  for (const char* a : {"tcp://h:8002", "tls://h:8002", "unix:/run/m.sock", "unix:@m"}) EXPECT_TRUE(l.add(a)) << a;
  const auto back = tp::parse_locator(tp::to_text(l).view());
  ASSERT_TRUE(succeeded(back));
  EXPECT_EQ(*back, l);
  EXPECT_EQ(back->address(3), "unix:@m");
  for (const char* a : {"nats://h:4222", "shm:/run/m", "shm:@m", "udp://h:9", "http://h/v1/m/1",
                        "https://h:8443/m?x=1@2", "unix:///run/m.sock"})
    EXPECT_TRUE(tp::locator(some).add(a)) << a;
}

TEST(Locator, No_command_no_device_and_no_password_is_an_address_here) {
  for (const char* a : {"pipe:rm",
                        "pipe:-",
                        "serial:/dev/watchdog",
                        "nats://user:word@h:4222",
                        "https://user:word@h/m",
                        "http://u@h/m",
                        "tls://u@h:1",
                        "tls://:1",
                        "tls://h:0",
                        "tls:h:1",
                        "udp://h",
                        "unix:",
                        "shm:",
                        "http:h",
                        "http://",
                        "https:///m",
                        "nats://",
                        "/run/m.sock",
                        "@m",
                        "-",
                        "ftp:h/m",
                        "TLS://h:1"}) {
    const auto refused = tp::locator(some).add(a);
    EXPECT_EQ(code_of(refused), tp::errc::bad_address) << a;
  }
}

TEST(Locator, Nothing_else_is_parsed_and_nothing_is_allocated) {
  const std::string everything(1 << 20, 'x');
  const std::string long_address = text + "@" + std::string(200, 'a') + ":1";
  const std::string five = text + "@a:1,a:2,a:3,a:4,a:5";
  const std::string nul = text + std::string("@a\0b:1", 6);
  const std::string bad_digit = "tensorpull:g123456789abcdeffedcba9876543210/1111222233334444/5555666677778888";
  const std::string minus = "tensorpull:0123456789abcdeffedcba9876543210/-111222233334444/5555666677778888";
  const std::string no_id = "tensorpull:00000000000000000000000000000000/1111222233334444/5555666677778888@a:1";
  const std::string hostile[] = {"",
                                 "tensorpull:",
                                 "x" + text,
                                 text + " ",
                                 text + "@",
                                 text + "@a",
                                 text + "@a:1,",
                                 text + "@,a:1",
                                 text + "@:80",
                                 text + "@a:0",
                                 text + "@a:65536",
                                 text + "@a b:1",
                                 text + "@a\n:1",
                                 text + "@a@b:1",
                                 text + "@fe80::1:9",
                                 text.substr(0, text.size() - 1)};
  const test::allocation_watch watch;
  for (const std::string& t : hostile) EXPECT_FALSE(tp::parse_locator(t)) << t;
  EXPECT_EQ(code_of(tp::parse_locator(everything)), tp::errc::too_large);
  EXPECT_EQ(code_of(tp::parse_locator(long_address)), tp::errc::bad_address);
  EXPECT_EQ(code_of(tp::parse_locator(five)), tp::errc::table_full);
  EXPECT_EQ(code_of(tp::parse_locator(nul)), tp::errc::bad_address);
  EXPECT_EQ(code_of(tp::parse_locator(bad_digit)), tp::errc::bad_frame);
  EXPECT_EQ(tp::parse_locator(minus).error().at, 44u);
  EXPECT_FALSE(tp::parse_locator(no_id));
  for (std::size_t n = 0; n < text.size(); ++n) EXPECT_FALSE(tp::parse_locator(std::string_view(text).substr(0, n)));
  EXPECT_EQ(watch.count(), 0u);
}

}  // namespace locator_test
