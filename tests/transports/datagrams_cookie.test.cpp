// Cookies: only who receives at an address knows its word.
#include <tensorpull/system/entropy.hpp>
#include <tensorpull/transports/datagrams/called_link.hpp>
#include <tensorpull/transports/datagrams/cookie.hpp>
#include <tensorpull/transports/datagrams/guest_link.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace {

using namespace tensorpull;
using namespace std::chrono_literals;

struct place {
  std::uint64_t host, port;
};

constexpr cookie_door::time_point start{1h};

std::vector<std::byte> datagram_of(std::uint64_t word, std::size_t frames) {
  std::vector<std::byte> d(cookie_bytes + frames);
  std::memcpy(d.data(), &word, sizeof word);
  return d;
}

TEST(siphash, has_the_values_of_its_authors) {
  std::array<std::byte, 64> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i);
  const detail::siphash_key key{0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
  // vectors_sip64 of the reference implementation, for 0, 1, 7, 8, 15 and 63 bytes
  EXPECT_EQ(detail::siphash(key, std::span(bytes).first(0)), 0x726fdb47dd0e0e31u);
  EXPECT_EQ(detail::siphash(key, std::span(bytes).first(1)), 0x74f839c593dc67fdu);
  EXPECT_EQ(detail::siphash(key, std::span(bytes).first(7)), 0xab0200f58b01d137u);
  EXPECT_EQ(detail::siphash(key, std::span(bytes).first(8)), 0x93f5f5799a932462u);
  EXPECT_EQ(detail::siphash(key, std::span(bytes).first(15)), 0xa129ca6149be45e5u);
  EXPECT_EQ(detail::siphash(key, std::span(bytes).first(63)), 0x958a324ceb064572u);
}

TEST(cookie_door, a_word_is_right_from_its_address_only) {
  const cookie_door door(system_entropy{}, start);
  const std::uint64_t word = door.of(place{1, 80});
  EXPECT_NE(word, 0u);
  EXPECT_EQ(door.check(place{1, 80}, word), cookie_verdict::right);
  EXPECT_EQ(door.check(place{1, 81}, word), cookie_verdict::wrong) << "stolen by another port";
  EXPECT_EQ(door.check(place{2, 80}, word), cookie_verdict::wrong) << "stolen by another host";
  EXPECT_EQ(door.check(place{1, 80}, 0), cookie_verdict::wrong);
  EXPECT_EQ(door.check(place{1, 80}, word ^ 1), cookie_verdict::wrong);
}

TEST(cookie_door, another_owner_knows_none_of_its_words) {
  const cookie_door one(system_entropy{}, start), other(system_entropy{}, start);
  EXPECT_EQ(other.check(place{1, 80}, one.of(place{1, 80})), cookie_verdict::wrong);
}

TEST(cookie_door, a_word_ends_with_the_secret_after_the_next) {
  cookie_door door(system_entropy{}, start);
  const std::uint64_t word = door.of(place{1, 80});
  door.pass_time(system_entropy{}, start + cookie_door::lifetime - 1ms);
  EXPECT_EQ(door.check(place{1, 80}, word), cookie_verdict::right);
  door.pass_time(system_entropy{}, start + cookie_door::lifetime);
  EXPECT_EQ(door.check(place{1, 80}, word), cookie_verdict::outdated);
  EXPECT_NE(door.of(place{1, 80}), word);
  door.pass_time(system_entropy{}, start + 2 * cookie_door::lifetime);
  EXPECT_EQ(door.check(place{1, 80}, word), cookie_verdict::wrong);
}

TEST(cookie_door, a_door_that_slept_for_long_takes_no_old_word) {
  cookie_door door(system_entropy{}, start);
  const std::uint64_t word = door.of(place{1, 80});
  door.pass_time(system_entropy{}, start + 24h);
  EXPECT_EQ(door.check(place{1, 80}, word), cookie_verdict::wrong);
}

TEST(cookie_door, what_is_not_longer_than_its_answer_gets_none) {
  for (std::size_t n = 0; n <= cookie_bytes; ++n) EXPECT_FALSE(cookie_door::answers(n)) << n;
  EXPECT_TRUE(cookie_door::answers(1200));
}

TEST(cookie_guest, takes_the_word_and_sends_again) {
  cookie_guest guest;
  EXPECT_EQ(guest.word(), 0u);
  EXPECT_TRUE(guest.open(datagram_of(7, 0)).empty());
  EXPECT_EQ(guest.word(), 7u);
  EXPECT_TRUE(guest.changed());
  EXPECT_FALSE(guest.changed());
  EXPECT_TRUE(guest.open(datagram_of(7, 0)).empty());
  EXPECT_FALSE(guest.changed()) << "it was the same word";
}

TEST(cookie_guest, frames_without_its_word_are_dropped) {
  cookie_guest guest;
  EXPECT_TRUE(guest.open(datagram_of(0, 16)).empty()) << "before the door has said a word";
  EXPECT_TRUE(guest.open(datagram_of(7, 16)).empty());
  (void)guest.open(datagram_of(7, 0));
  EXPECT_EQ(guest.open(datagram_of(7, 16)).size(), 16u);
  EXPECT_TRUE(guest.open(datagram_of(8, 16)).empty());
  EXPECT_TRUE(guest.open(datagram_of(0, 16)).empty());
  (void)guest.open(datagram_of(9, 0));
  EXPECT_EQ(guest.open(datagram_of(7, 16)).size(), 16u) << "it was under way";
  EXPECT_EQ(guest.open(datagram_of(9, 16)).size(), 16u);
  (void)guest.open(datagram_of(10, 0));
  EXPECT_TRUE(guest.open(datagram_of(7, 16)).empty());
}

TEST(cookie_guest, short_datagrams_are_nothing) {
  cookie_guest guest;
  for (std::size_t n = 0; n < cookie_bytes; ++n)
    EXPECT_TRUE(guest.open(std::vector<std::byte>(n, std::byte{1})).empty());
  EXPECT_EQ(guest.word(), 0u);
  EXPECT_TRUE(guest.open(datagram_of(0, 0)).empty()) << "no door says 0";
  EXPECT_FALSE(guest.changed());
}

/// A link at which many datagrams of strangers wait.
struct flooded {
  struct address {
    std::uint64_t who = 0;
    std::uint64_t hash() const noexcept { return who; }
    friend bool operator==(const address&, const address&) = default;
  };
  static constexpr std::size_t max_datagram_bytes = 128;
  static constexpr bool checked = true, addresses_are_proved = false;

  std::size_t datagram_bytes() const noexcept { return max_datagram_bytes; }
  io_result receive(std::span<std::byte> memory, address& from) noexcept {
    if (left == 0) return {io_status::would_block, 0, 0};
    --left;
    from = {left};
    std::ranges::fill(memory.first(64), std::byte{3});
    return {io_status::ok, 0, 64};
  }
  io_result send(std::span<const std::span<const std::byte>>, const address&) noexcept { return {}; }
  io_ready wait(bool, bool, std::chrono::milliseconds) noexcept { return {}; }

  static inline std::size_t left = 0;
};
static_assert(datagram_link<flooded>);

template <class Link>
void expect_it_returns() {
  Link link{flooded{}};
  flooded::left = 100'000;
  alignas(8) std::array<std::byte, 128> memory;
  only_peer from;
  EXPECT_EQ(link.receive(memory, from).status, io_status::would_block);
  EXPECT_GT(flooded::left, 99'000u) << "its caller has to look at the time now and then";
}
TEST(called_link, a_flood_of_strangers_does_not_keep_the_caller) { expect_it_returns<called_link<flooded>>(); }
TEST(guest_link, a_flood_of_strangers_does_not_keep_the_caller) { expect_it_returns<guest_link<flooded>>(); }

}  // namespace
