// The edges of the parts for small machines: lines that take nothing, two recipients that want the same model, and
// owners that lie.
#include "support/results.hpp"

#include <tensorpull/embedded/landing.hpp>
#include <tensorpull/embedded/line.hpp>
#include <tensorpull/embedded/owner.hpp>
#include <tensorpull/embedded/recipient.hpp>
#include <tensorpull/pull/platform.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace edges_test {
struct small_model {
  float weight[40][4];
  std::uint8_t u[5];
};
template <std::size_t N>
struct bytes_model {
  std::uint8_t u[N];
};
struct bool_model {
  bool one;
};
struct no_tensors {
  int kept;
};
struct odd_model {
  bool b[3];
  std::uint8_t u[7];
  std::array<no_tensors, 2> none;
  std::array<small_model, 0> gone;
  std::array<std::array<float, 0>, 3> hole;
};
}  // namespace edges_test
template <std::size_t N>
inline constexpr auto tensorpull::members_of<edges_test::bytes_model<N>> = tensorpull::members(
    tensorpull::member{"u", &edges_test::bytes_model<N>::u});
template <>
inline constexpr auto tensorpull::members_of<edges_test::bool_model> = tensorpull::members(
    tensorpull::member{"one", &edges_test::bool_model::one});
template <>
inline constexpr auto tensorpull::members_of<edges_test::no_tensors> = tensorpull::members();
template <>
inline constexpr auto tensorpull::members_of<edges_test::small_model> = tensorpull::members(
    tensorpull::member{"weight", &edges_test::small_model::weight},
    tensorpull::member{"u", &edges_test::small_model::u});
template <>
inline constexpr auto tensorpull::members_of<edges_test::odd_model> = tensorpull::members(
    tensorpull::member{"b", &edges_test::odd_model::b}, tensorpull::member{"u", &edges_test::odd_model::u},
    tensorpull::member{"hole", &edges_test::odd_model::hole}, tensorpull::member{"none", &edges_test::odd_model::none},
    tensorpull::member{"gone", &edges_test::odd_model::gone});

namespace edges_test {

using namespace test;
using landing = tp::model_landing<small_model>;
using small_recipient = tp::embedded_recipient<landing, 64>;
using small_owner = tp::embedded_owner<small_model, 64, tp::lean_xxh3_64, tp::detail::no_hash, 152>;

/// A device whose other end takes nothing, as with flow control or a cable that is out.
struct deaf_device {
  tp::io_result read(byte_span) noexcept { return {tp::io_status::would_block, 0, 0}; }
  tp::io_result write(const_byte_span b) noexcept {
    const std::size_t n = std::min(b.size(), takes);
    takes -= n;
    return {n > 0 ? tp::io_status::ok : tp::io_status::would_block, 0, n};
  }
  std::size_t takes = 0;
};

/// Two recipients and an owner that hear each other at once.
TEST(EmbeddedEdges, Another_that_is_told_busy_does_not_take_the_place_of_the_first) {
  small_model source{}, one{}, two{};
  source.weight[3][2] = 5;
  small_owner owner;
  owner.publish(source, {1, 2}, 99);
  landing to_one(one), to_two(two);
  small_recipient first(to_one, {.ref = {1, 2}, .timeout_ms = 5'000, .retry_ms = 100}, std::uint64_t{100} << 32 | 2);
  small_recipient second(to_two, {.ref = {1, 2}, .timeout_ms = 500, .retry_ms = 100}, std::uint64_t{1000} << 32 | 4);
  std::byte out[80], back[152];
  const auto turn = [&](small_recipient& r, std::uint32_t now) {
    if (const std::size_t n = r.next(out, now); n > 0)
      if (const std::size_t m = owner.answer({out, n}, back, now); m > 0) r.received({back, m}, now);
  };
  turn(first, 0);
  turn(first, 1);
  turn(second, 2);
  for (std::uint32_t now = 3; now < 20'000 && !first.ended(); ++now) turn(first, now);
  ASSERT_TRUE(first.ended());
  ASSERT_TRUE(first.outcome());
  EXPECT_TRUE(first.outcome()->confirmed);
  EXPECT_EQ(owner.state(), tp::recipient_state::completed);
}

TEST(EmbeddedEdges, A_device_that_takes_nothing_ends_a_pull_in_time) {
  for (const std::size_t takes : {0u, 1u, 40u, 90u, 200u}) {
    small_model m{};
    deaf_device device{takes};
    tp::embedded_line<deaf_device, 152, 80> line(device);
    landing to(m);
    small_recipient r(to, {.ref = {1, 2}, .timeout_ms = 5'000}, 7);
    std::uint32_t now = 0xffff'f000;
    const auto ended = tp::pull(line, r, [&] {
      if (++now == 0x0010'0000) std::_Exit(3);
      return now;
    });
    EXPECT_EQ(code_of(ended), tp::errc::timed_out);
  }
}

/// Keeps a whole image of another version.
struct kept_landing {
  using image = tp::embedded_image<small_model>;
  small_model* m;
  tp::resume_cursor at;
  tp::result<void> write(std::uint32_t, const_byte_span) noexcept { return {}; }
  tp::result<void> read(std::uint32_t from, byte_span out) noexcept {
    image::read(*m, from, out);
    return tp::result<void>{};
  }
  tp::resume_cursor cursor() noexcept { return at; }
  tp::result<void> save(const tp::resume_cursor&) noexcept { return {}; }
};
TEST(EmbeddedEdges, A_landed_image_of_another_version_is_not_the_one_that_was_asked_for) {
  small_model source{};
  source.weight[3][2] = 5;
  small_owner owner;  // only to have a version
  owner.publish(source, {1, 2}, 99);
  const std::uint64_t here = owner.reference().version;
  for (const std::uint64_t wanted : {std::uint64_t{0}, here, here + 1}) {
    kept_landing to{&source, {{1, 2}, kept_landing::image::fingerprint, here, kept_landing::image::image_bytes, here}};
    tp::embedded_recipient<kept_landing, 64> r(
        to, {.ref = {1, 2}, .version = wanted, .recipient = {9}, .timeout_ms = 500}, 7);
    std::byte frame[80];
    ASSERT_EQ(r.next(frame, 0), 80u);
    frame[20] = static_cast<std::byte>(tp::frame_kind::refused);
    for (std::size_t i = 40; i < 80; ++i) frame[i] = std::byte{0};
    frame[56] = static_cast<std::byte>(tp::status::already_final);
    r.received(frame, 1);
    ASSERT_TRUE(r.ended());
    if (wanted == here + 1) {
      EXPECT_EQ(code_of(r.outcome()), tp::errc::already_final) << "completed with another version";
    } else {
      ASSERT_TRUE(r.outcome());
      EXPECT_EQ(r.outcome()->version, here);
    }
  }
}

/// A whole pull between two small machines; ids and the clock wrap on the way.
template <class Model, std::size_t Chunk, std::size_t Datagram>
void expect_it_arrives() {
  using image = tp::embedded_image<Model>;
  const auto source = std::make_unique<Model>(), copy = std::make_unique<Model>();
  byte_vector data(image::data_bytes), there(image::data_bytes);
  constexpr bool of_bools = std::is_same_v<Model, bool_model> || std::is_same_v<Model, odd_model>;
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(of_bools ? i % 2 : 3 * i);
  ASSERT_TRUE(image::write(*source, 0, data));
  tp::embedded_owner<Model, Chunk, std::conditional_t<(image::image_bytes >= 241), tp::lean_xxh3_64, tp::xxh3_64>,
                     tp::detail::no_hash, Datagram>
      owner;
  owner.publish(*source, {1, 2}, 99);
  tp::xxh3_64 all;
  all.update(const_byte_span(image::header));
  all.update(const_byte_span(data));
  EXPECT_EQ(owner.reference().version, all.digest());
  tp::model_landing<Model> to(*copy);
  tp::embedded_recipient<tp::model_landing<Model>, Chunk> r(to, {.ref = {1, 2}, .timeout_ms = 5'000, .retry_ms = 100},
                                                            std::uint64_t{0xffff'fffe} << 32);
  byte_vector out(80), back(Datagram);
  for (std::uint32_t now = 0xffff'fff0; now != 20'000 && !r.ended(); ++now)
    if (const std::size_t n = r.next(out, now); n > 0)
      if (const std::size_t m = owner.answer({out.data(), n}, back, now); m > 0) {
        const byte_vector exact(back.begin(), back.begin() + static_cast<std::ptrdiff_t>(m));
        r.received(exact, now);
      }
  ASSERT_TRUE(r.ended());
  ASSERT_TRUE(r.outcome());
  EXPECT_TRUE(r.outcome()->confirmed);
  EXPECT_EQ(r.outcome()->outcome, tp::outcome::completed);
  image::read(*copy, 0, there);
  EXPECT_EQ(there, data);
}
template <std::size_t Bytes>
void expect_an_image_of() {
  constexpr std::size_t header = tp::embedded_image<bytes_model<100>>::header_bytes;
  static_assert(tp::embedded_image<bytes_model<Bytes - header>>::image_bytes == Bytes);
  SCOPED_TRACE(Bytes);
  expect_it_arrives<bytes_model<Bytes - header>, 64, 152>();
  expect_it_arrives<bytes_model<Bytes - header>, 24, 104>();
}
TEST(EmbeddedEdges, Images_around_the_shortest_of_the_lean_hash_arrive) {
  expect_an_image_of<240>();
  expect_an_image_of<241>();
  expect_an_image_of<256>();
  expect_an_image_of<257>();
}
TEST(EmbeddedEdges, Models_of_one_bool_of_nothing_and_of_odd_tensors_arrive) {
  expect_it_arrives<bool_model, 8, 104>();
  expect_it_arrives<no_tensors, 64, 152>();
  expect_it_arrives<odd_model, 24, 104>();
}

struct slow_clock {
  static inline std::uint32_t at = 0;
  static std::chrono::duration<std::uint32_t, std::micro> now() noexcept {
    return std::chrono::duration<std::uint32_t, std::micro>(at);
  }
  static std::uint64_t random() noexcept { return 4; }
  [[noreturn]] static void panic(const char*) noexcept { std::_Exit(3); }
};
TEST(EmbeddedEdges, A_time_out_of_more_than_the_clock_has_is_cut_and_still_comes) {
  EXPECT_EXIT(
      {
        slow_clock::at = 0xffff'0000;
        tp::detail::stopwatch<slow_clock> watch;
        // as drivers wait: steps of at most 50 ms and of what is left, each a little late
        for (int i = 0; i < 200'000; ++i) {
          const auto left = watch.left(1h);
          if (left.count() == 0) std::_Exit(0);
          slow_clock::at += static_cast<std::uint32_t>(std::min<std::int64_t>(50, left.count())) * 1000 + 300;
        }
        std::_Exit(1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace edges_test
