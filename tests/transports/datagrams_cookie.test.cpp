// Cookies: only a peer that receives at an address knows its word.
#include <tensorpull/system/entropy.hpp>
#include <tensorpull/transports/peers/called_link.hpp>
#include <tensorpull/transports/peers/cookie.hpp>
#include <tensorpull/transports/peers/guest_link.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <vector>

namespace datagrams_cookie_test {

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

TEST(Siphash, Has_the_values_of_its_authors) {
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

TEST(CookieDoor, A_word_is_right_from_its_address_only) {
  const cookie_door door(system_entropy{}, start);
  const std::uint64_t word = door.of(place{1, 80});
  EXPECT_NE(word, 0u);
  EXPECT_EQ(door.check(place{1, 80}, word), cookie_verdict::right);
  EXPECT_EQ(door.check(place{1, 81}, word), cookie_verdict::wrong) << "stolen by another port";
  EXPECT_EQ(door.check(place{2, 80}, word), cookie_verdict::wrong) << "stolen by another host";
  EXPECT_EQ(door.check(place{1, 80}, 0), cookie_verdict::wrong);
  EXPECT_EQ(door.check(place{1, 80}, word ^ 1), cookie_verdict::wrong);
}

TEST(CookieDoor, Another_owner_knows_none_of_its_words) {
  const cookie_door one(system_entropy{}, start), other(system_entropy{}, start);
  EXPECT_EQ(other.check(place{1, 80}, one.of(place{1, 80})), cookie_verdict::wrong);
}

TEST(CookieDoor, A_word_ends_with_the_secret_after_the_next) {
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

TEST(CookieDoor, A_door_that_slept_for_long_takes_no_old_word) {
  cookie_door door(system_entropy{}, start);
  const std::uint64_t word = door.of(place{1, 80});
  door.pass_time(system_entropy{}, start + 24h);
  EXPECT_EQ(door.check(place{1, 80}, word), cookie_verdict::wrong);
}

TEST(CookieDoor, What_is_not_longer_than_its_answer_gets_none) {
  for (std::size_t n = 0; n <= cookie_bytes; ++n) EXPECT_FALSE(cookie_door::answers(n)) << n;
  EXPECT_TRUE(cookie_door::answers(1200));
}

/// As datagram_of, with the echo of `front`.
std::vector<std::byte> answer_of(std::uint64_t word, std::uint64_t front) {
  auto d = datagram_of(word, sizeof front);
  std::memcpy(d.data() + cookie_bytes, &front, sizeof front);
  return d;
}

TEST(CookieDoor, Echoes_what_stood_in_front_only_to_those_that_want_it) {
  cookie_door door(system_entropy{}, start);
  const place who{1, 80};
  const std::uint64_t number = cookie_guest(5).number();
  EXPECT_TRUE(std::ranges::equal(door.answer(who, datagram_of(0, 16)).bytes(), datagram_of(door.of(who), 0)))
      << "a guest of an earlier version begins with 0";
  const std::uint64_t plain = door.of(who), word = door.of(who, number);
  EXPECT_NE(word, plain);
  EXPECT_TRUE(std::ranges::equal(door.answer(who, datagram_of(number, 16)).bytes(), answer_of(word, number)));
  EXPECT_EQ(door.check(who, word), cookie_verdict::right);
  EXPECT_EQ(door.check(who, plain), cookie_verdict::right);
  EXPECT_EQ(door.check(who, number), cookie_verdict::wrong);
  door.pass_time(system_entropy{}, start + cookie_door::lifetime);
  EXPECT_EQ(door.check(who, word), cookie_verdict::outdated);
  EXPECT_EQ(door.check(who, plain), cookie_verdict::outdated);
  EXPECT_TRUE(
      std::ranges::equal(door.answer(who, datagram_of(word, 100)).bytes(), answer_of(door.of(who, word), word)));
  EXPECT_TRUE(std::ranges::equal(door.answer(who, datagram_of(plain, 100)).bytes(), datagram_of(door.of(who), 0)));
}

TEST(CookieDoor, No_answer_is_as_long_as_what_it_answers) {
  const cookie_door door(system_entropy{}, start);
  const std::uint64_t number = cookie_guest(5).number();
  for (std::size_t n = 0; n < 64; ++n) {
    auto d = datagram_of(number, 64);
    d.resize(n);
    const auto answer = door.answer(place{1, 80}, d).bytes();
    EXPECT_EQ(answer.empty(), !cookie_door::answers(n)) << n;
    EXPECT_LE(answer.size(), n);
    EXPECT_TRUE(door.answer(place{1, 80}, answer).bytes().empty()) << "two doors never answer each other";
  }
}

TEST(CookieGuest, Takes_the_word_and_sends_again) {
  cookie_guest guest(5);
  const std::uint64_t number = guest.word();
  EXPECT_NE(number, 0u);
  EXPECT_TRUE(guest.open(answer_of(7, number)).empty());
  EXPECT_EQ(guest.word(), 7u);
  EXPECT_TRUE(guest.proved());
  EXPECT_TRUE(guest.changed());
  EXPECT_FALSE(guest.changed());
  EXPECT_TRUE(guest.open(answer_of(7, number)).empty());
  EXPECT_FALSE(guest.changed()) << "it was the same word";
  EXPECT_NE(cookie_guest(6).word(), number);
  EXPECT_NE(cookie_guest(0).word(), 0u);
}

TEST(CookieGuest, A_word_without_an_echo_of_what_it_sent_changes_nothing) {
  cookie_guest guest(5);
  const std::uint64_t number = guest.word();
  (void)guest.open(answer_of(7, number));
  EXPECT_TRUE(guest.changed());
  for (const auto& forged : {datagram_of(8, 0), answer_of(8, 0), answer_of(8, 8), answer_of(8, number + 1)}) {
    EXPECT_TRUE(guest.open(forged).empty());
    EXPECT_EQ(guest.word(), 7u);
    EXPECT_FALSE(guest.changed());
    EXPECT_TRUE(guest.open(datagram_of(8, 16)).empty()) << "frames behind a word that somebody has made up";
  }
  (void)guest.open(answer_of(9, 7));
  EXPECT_EQ(guest.word(), 9u) << "the door has another secret";
  EXPECT_TRUE(guest.changed());
  (void)guest.open(answer_of(10, 7));
  EXPECT_EQ(guest.word(), 9u) << "that is not in front any more";
}

TEST(CookieGuest, A_forged_word_that_came_first_is_forgotten) {
  cookie_guest guest(5);
  const std::uint64_t number = guest.word();
  (void)guest.open(datagram_of(8, 0));
  EXPECT_EQ(guest.word(), 8u) << "it may be of a door of an earlier version";
  (void)guest.open(answer_of(9, 8));
  EXPECT_FALSE(guest.proved()) << "who has made up 8 can echo it";
  (void)guest.open(answer_of(7, number));
  EXPECT_TRUE(guest.proved());
  EXPECT_EQ(guest.word(), 7u);
  EXPECT_TRUE(guest.open(datagram_of(8, 16)).empty());
  EXPECT_TRUE(guest.open(datagram_of(9, 16)).empty());
  EXPECT_EQ(guest.open(datagram_of(7, 16)).size(), 16u);
}

TEST(CookieGuest, Frames_without_its_word_are_dropped) {
  cookie_guest guest(5);
  EXPECT_TRUE(guest.open(datagram_of(0, 16)).empty()) << "before the door has said a word";
  EXPECT_TRUE(guest.open(datagram_of(7, 16)).empty());
  (void)guest.open(answer_of(7, guest.word()));
  EXPECT_EQ(guest.open(datagram_of(7, 16)).size(), 16u);
  EXPECT_TRUE(guest.open(datagram_of(8, 16)).empty());
  EXPECT_TRUE(guest.open(datagram_of(0, 16)).empty());
  (void)guest.open(answer_of(9, 7));
  EXPECT_EQ(guest.open(datagram_of(7, 16)).size(), 16u) << "it was under way";
  EXPECT_EQ(guest.open(datagram_of(9, 16)).size(), 16u);
  (void)guest.open(answer_of(10, 9));
  EXPECT_TRUE(guest.open(datagram_of(7, 16)).empty());
}

TEST(CookieGuest, A_door_of_an_earlier_version_changes_its_word) {
  cookie_guest guest(5);
  (void)guest.open(datagram_of(7, 0));
  EXPECT_EQ(guest.open(datagram_of(7, 16)).size(), 16u);
  (void)guest.open(datagram_of(9, 0));
  EXPECT_EQ(guest.word(), 9u);
  EXPECT_EQ(guest.open(datagram_of(7, 16)).size(), 16u) << "it was under way";
  EXPECT_EQ(guest.open(datagram_of(9, 16)).size(), 16u);
}

TEST(CookieGuest, Short_datagrams_are_nothing) {
  cookie_guest guest(5);
  for (const std::size_t n : {0u, 1u, 7u, 9u, 12u, 15u})
    EXPECT_TRUE(guest.open(std::vector<std::byte>(n, std::byte{1})).empty());
  EXPECT_EQ(guest.word(), guest.number());
  EXPECT_TRUE(guest.open(datagram_of(0, 0)).empty()) << "no door says 0";
  EXPECT_TRUE(guest.open(answer_of(0, guest.number())).empty());
  EXPECT_FALSE(guest.changed());
}

/// What a link with many peers says of itself.
struct of_many_peers {
  struct address {
    std::uint64_t who = 0;
    std::uint64_t hash() const noexcept { return who; }
    friend bool operator==(const address&, const address&) = default;
  };
  static constexpr std::size_t max_datagram_bytes = 128;
  static constexpr bool checked = true, addresses_are_proved = false;

  std::size_t datagram_bytes() const noexcept { return max_datagram_bytes; }
};
/// A link at which many datagrams of strangers wait.
struct flooded : of_many_peers {
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
/// A link whose other end is the test.
struct scripted {
  using address = only_peer;
  static constexpr std::size_t max_datagram_bytes = 128;
  static constexpr bool checked = true, addresses_are_proved = false;

  std::size_t datagram_bytes() const noexcept { return max_datagram_bytes; }
  io_result receive(std::span<std::byte> memory, address&) noexcept {
    if (comes.empty()) return {io_status::would_block, 0, 0};
    const auto d = std::move(comes.front());
    comes.pop_front();
    std::ranges::copy(d, memory.begin());
    return {io_status::ok, 0, d.size()};
  }
  io_result send(std::span<const std::span<const std::byte>> spans, const address&) noexcept {
    std::vector<std::byte> d;
    for (const auto& s : spans) d.insert(d.end(), s.begin(), s.end());
    went.push_back(d);
    return {io_status::ok, 0, d.size()};
  }
  io_ready wait(bool, bool, std::chrono::milliseconds) noexcept { return {}; }

  static inline std::deque<std::vector<std::byte>> comes, went;
};
TEST(GuestLink, Sends_its_first_datagram_again_with_the_word_that_is_proved_and_asks_until_then) {
  using datagrams = std::deque<std::vector<std::byte>>;
  scripted::comes.clear();
  scripted::went.clear();
  guest_link<scripted> guest(scripted{}, 5);
  const std::uint64_t number = cookie_guest(5).number();
  const std::vector<std::byte> first(32, std::byte{1});
  const auto with = [&](std::uint64_t word) {
    auto d = datagram_of(word, first.size());
    std::ranges::copy(first, d.begin() + cookie_bytes);
    return d;
  };
  alignas(8) std::array<std::byte, 128> memory;
  only_peer door;
  const auto hear = [&](std::vector<std::byte> d) {
    scripted::comes.push_back(std::move(d));
    (void)guest.receive(memory, door);
    return std::exchange(scripted::went, {});
  };
  const std::array spans{std::span<const std::byte>(first)};
  EXPECT_EQ(guest.send(spans, {}).bytes, first.size());
  EXPECT_EQ(std::exchange(scripted::went, {}), datagrams{with(number)});
  const auto question = datagram_of(number, 16);
  EXPECT_EQ(hear(datagram_of(8, 0)), (datagrams{with(8), question})) << "it may be of an earlier version";
  EXPECT_EQ(hear(datagram_of(9, 0)), datagrams{question}) << "forged ones cost little";
  EXPECT_EQ(hear(answer_of(7, number)), datagrams{with(7)});
  EXPECT_EQ(hear(datagram_of(8, 0)), datagrams{});
  EXPECT_EQ(hear(answer_of(6, 7)), datagrams{}) << "the first has arrived long ago";
}

/// The same for many peers, which gives what came where it lies, and collects.
struct scripted_in_batches : of_many_peers {
  io_result receive(std::span<std::byte> memory, address& from) noexcept {
    std::span<const std::byte> datagram;
    const io_result io = receive_in_place(datagram, from);
    std::ranges::copy(datagram, memory.begin());
    return io;
  }
  io_result receive_in_place(std::span<const std::byte>& datagram, address& from) noexcept {
    only_peer one;
    came.resize(max_datagram_bytes);
    const io_result io = scripted{}.receive(came, one);
    datagram = std::span(came).first(io.bytes);
    from = {7};
    return io;
  }
  io_result send(std::span<const std::span<const std::byte>> spans, const address& to) noexcept {
    return to.who == 7 ? scripted{}.send(spans, {}) : io_result{};
  }
  io_result collect(std::span<const std::span<const std::byte>> spans, const address& to) noexcept {
    ++collected;
    return send(spans, to);
  }
  io_ready wait(bool, bool, std::chrono::milliseconds) noexcept { return {}; }

  static inline std::vector<std::byte> came;
  static inline int collected = 0;
};
TEST(CalledLink, Datagrams_leave_together_and_come_without_a_copy_if_the_link_below_can_do_that) {
  using called_below = called_link<scripted_in_batches>;
  EXPECT_TRUE(detail::collects<called_below>);
  EXPECT_TRUE(detail::receives_in_place<called_below>);
  scripted::comes.clear();
  scripted::went.clear();
  called_below called(scripted_in_batches{});
  const std::vector<std::byte> frame(32, std::byte{1});
  const std::array spans{std::span<const std::byte>(frame)};
  std::span<const std::byte> datagram;
  only_peer peer;
  EXPECT_EQ(called.collect(spans, peer).bytes, 0u) << "nobody has called";
  scripted::comes.push_back(datagram_of(5, frame.size()));
  EXPECT_EQ(called.receive_in_place(datagram, peer).status, io_status::would_block) << "a stranger is told its word";
  ASSERT_EQ(scripted::went.size(), 1u);
  const std::uint64_t word = cookie_in(scripted::went[0]);
  scripted::comes.push_back(datagram_of(word, frame.size()));
  ASSERT_EQ(called.receive_in_place(datagram, peer).bytes, frame.size());
  EXPECT_EQ(datagram.data(), scripted_in_batches::came.data() + cookie_bytes);
  EXPECT_EQ(called.collect(spans, peer).bytes, frame.size());
  EXPECT_EQ(scripted_in_batches::collected, 1);
  EXPECT_EQ(cookie_in(scripted::went.back()), word);
  EXPECT_EQ(scripted::went.back().size(), cookie_bytes + frame.size());
}

TEST(CalledLink, A_flood_of_strangers_does_not_keep_the_caller) { expect_it_returns<called_link<flooded>>(); }
TEST(GuestLink, A_flood_of_strangers_does_not_keep_the_caller) { expect_it_returns<guest_link<flooded>>(); }

}  // namespace datagrams_cookie_test
