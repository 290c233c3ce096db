// F1 to F5: what a segment table may claim. Nothing is allocated or awaited for a claim.
#include "support/allocation_counter.hpp"
#include "support/frames.hpp"
#include "support/processor_time.hpp"
#include "support/results.hpp"

namespace segment_table_test {

using namespace test;

constexpr std::size_t cap = 4096, segments = 16;

/// A segment table, as it stands on the wire.
byte_vector table(std::uint32_t count_minus_one, const std::vector<std::uint32_t>& sizes) {
  std::vector<std::uint32_t> halves{count_minus_one};
  halves.insert(halves.end(), sizes.begin(), sizes.end());
  if (halves.size() % 2 == 1) halves.push_back(0);
  byte_vector bytes(4 * halves.size());
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(halves[i / 4] >> (8 * (i % 4)) & 0xff);
  return bytes;
}
errc refused(const byte_vector& head) {
  const allocation_watch watch;
  const auto n = tp::detail::measure_frame(head, cap, segments);
  EXPECT_EQ(watch.count(), 0u);
  EXPECT_FALSE(n);
  return n ? errc{} : n.error().code;
}

TEST(Framing, F1_segment_count_512_is_refused) {
  EXPECT_EQ(refused(table(511, {})), errc::too_large);
  EXPECT_EQ(refused(table(510, std::vector<std::uint32_t>(511, 0))), errc::too_large);
  EXPECT_EQ(refused(table(511, std::vector<std::uint32_t>(512, 1))), errc::too_large);
  for (const std::uint32_t n : {16u, 17u, 0x7fffffffu, 0xfffffffeu})
    EXPECT_EQ(refused(table(n, {1})), errc::too_large) << n;
  EXPECT_EQ(refused(table(0xffffffff, {0})), errc::bad_frame);
  // even if all its 511 sizes are there
  const auto long_table = table(510, std::vector<std::uint32_t>(511, 0));
  EXPECT_LT(least_processor_seconds([&] { EXPECT_FALSE(tp::detail::measure_frame(long_table, cap, segments)); }),
            0.001);
  // a table within the limit whose segments hold nothing
  EXPECT_EQ(refused(table(segments - 1, std::vector<std::uint32_t>(segments, 0))), errc::bad_frame);
}

TEST(Framing, F2_one_segment_of_8_MiWords_is_refused_from_its_first_word) {
  EXPECT_EQ(refused(table(0, {8u << 20})), errc::too_large);
  EXPECT_EQ(refused(table(0, {cap / 8})), errc::too_large);
  EXPECT_EQ(**tp::detail::measure_frame(table(0, {cap / 8 - 1}), cap, segments), cap);
}

TEST(Framing, F3_eight_segments_of_4_GiWords_do_not_wrap) {
  for (const std::uint32_t size : {0xffffffffu, 0x20000000u, 0x80000000u})
    EXPECT_EQ(refused(table(7, std::vector<std::uint32_t>(8, size))), errc::too_large) << size;
  // the sum of 16 segments modulo 2^32 words would be small
  EXPECT_EQ(refused(table(15, std::vector<std::uint32_t>(16, 0x10000000u))), errc::too_large);
}

TEST(Framing, F4_segments_each_legal_but_not_their_sum) {
  EXPECT_EQ(refused(table(2, {4u << 20, 4u << 20, 4u << 20})), errc::too_large);
  EXPECT_EQ(refused(table(2, {200, 200, 200})), errc::too_large);
}

TEST(Framing, F5_a_message_of_no_words_is_a_bad_frame) {
  EXPECT_EQ(refused(table(0, {0})), errc::bad_frame);
  EXPECT_EQ(refused(table(3, {0, 0, 0, 0})), errc::bad_frame);
  EXPECT_EQ(refused(table(1, {0, 5})), errc::bad_frame);
  EXPECT_EQ(decode_error(frame(table(0, {0}))), errc::bad_frame);
  EXPECT_EQ(decode_error(frame()), errc::bad_frame);
}

TEST(Framing, F6_a_request_cut_anywhere_waits_for_more_and_is_never_read) {
  tp::frame m;
  m.kind = tp::frame_kind::pull;
  const frame whole = encode(m);
  for (std::size_t k = 0; k < whole.size(); ++k) {
    const auto n = tp::detail::measure_frame(whole.bytes().first(k), cap, segments);
    ASSERT_TRUE(n);
    if (k < 8) EXPECT_FALSE(*n);
    else EXPECT_EQ(**n, whole.size());
    EXPECT_EQ(decode_error(frame(whole.bytes().first(k / 8 * 8))), errc::bad_frame);
  }
}

TEST(Framing, Every_table_of_few_segments_is_measured_exactly) {
  for (std::uint32_t count = 1; count <= segments; ++count) {
    std::vector<std::uint32_t> sizes(count, 3);
    const auto head = table(count - 1, sizes);
    EXPECT_EQ(**tp::detail::measure_frame(head, cap, segments), head.size() + 24 * count);
    EXPECT_FALSE(
        *tp::detail::measure_frame(std::span(head).first(head.size() - (head.size() > 8 ? 8 : 1)), cap, segments));
  }
}

TEST(Framing, F16_other_protocols_are_refused_from_their_first_words) {
  const auto first_word = [](std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    return refused({bytes.begin(), bytes.end()});
  };
  EXPECT_EQ(first_word(std::string_view("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16)), errc::bad_frame);
  EXPECT_EQ(first_word("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), errc::too_large);
  EXPECT_EQ(first_word("SSH-2.0-OpenSSH_9.2p1\r\n"), errc::too_large);
  EXPECT_EQ(first_word(std::string_view("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00", 12)), errc::too_large);
  EXPECT_EQ(first_word("\xff\xff\xff\xff\xff\xff\xff\xff"), errc::bad_frame);
}

}  // namespace segment_table_test
