#include <tensorpull/integrity/xxhash/chunk_crc32c.hpp>

#include "fuzz/fixture.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string_view>

namespace crc32c_test {

namespace tp = tensorpull;
using bytes = std::vector<std::byte>;
using by_table = tp::basic_crc32c<tp::crc32c_fast>;

std::uint64_t crc(std::span<const std::byte> data) {
  by_table hash;
  hash.update(data);
  return hash.digest();
}
std::uint64_t crc(std::string_view text) { return crc(std::as_bytes(std::span(text))); }

/// The definition, a bit at a time: reflected polynomial 0x1EDC6F41.
std::uint64_t crc_by_bits(std::span<const std::byte> data) {
  std::uint32_t c = 0xffffffffu;
  for (const std::byte b : data) {
    c ^= static_cast<std::uint32_t>(b);
    for (int i = 0; i < 8; ++i) c = c >> 1 ^ (0x82f63b78u & (0u - (c & 1u)));
  }
  return c ^ 0xffffffffu;
}

bytes counting(unsigned first, int step) {
  bytes b(32);
  for (std::byte& x : b) x = static_cast<std::byte>(first), first += static_cast<unsigned>(step);
  return b;
}

// RFC 3720, B.4: it prints them as they are sent, least significant byte first.
TEST(Crc32c, The_examples_of_rfc_3720) {
  EXPECT_EQ(crc(bytes(32, std::byte{0})), 0x8a9136aau);
  EXPECT_EQ(crc(bytes(32, std::byte{0xff})), 0x62a8ab43u);
  EXPECT_EQ(crc(counting(0, 1)), 0x46dd794eu);
  EXPECT_EQ(crc(counting(31, -1)), 0x113fdb5cu);
  constexpr std::array<unsigned char, 48> read_command{0x01, 0xc0, 0, 0, 0, 0, 0,    0, 0,    0, 0, 0,    0, 0, 0, 0,
                                                       0x14, 0,    0, 0, 0, 0, 0x04, 0, 0,    0, 0, 0x14, 0, 0, 0, 0x18,
                                                       0x28, 0,    0, 0, 0, 0, 0,    0, 0x02, 0, 0, 0,    0, 0, 0, 0};
  EXPECT_EQ(crc(std::as_bytes(std::span(read_command))), 0xd9963a56u);
}

TEST(Crc32c, The_usual_check_value_and_nothing_at_all) {
  EXPECT_EQ(crc("123456789"), 0xe3069283u);
  EXPECT_EQ(crc(""), 0u);
}

TEST(Crc32c, Every_length_and_alignment_up_to_the_end_of_a_page_is_the_definition) {
  test::generator random(32);
  test::fuzz::guarded_bytes memory(600);  // what reads behind it faults
  random.fill(memory.bytes());
  for (std::size_t n = 0; n <= 600; ++n)
    EXPECT_EQ(crc(memory.bytes().last(n)), crc_by_bits(memory.bytes().last(n))) << n;
  for (std::size_t shift = 0; shift < 17; ++shift)
    EXPECT_EQ(crc(memory.bytes().subspan(shift, 513)), crc_by_bits(memory.bytes().subspan(shift, 513))) << shift;
}

TEST(Crc32c, Parts_are_the_whole) {
  test::generator random(33);
  const bytes data = random.bytes(70'000);
  const std::uint64_t whole = crc(data);
  EXPECT_EQ(whole, crc_by_bits(data));
  for (int round = 0; round < 50; ++round) {
    by_table hash;
    for (std::size_t at = 0, n = 0; at < data.size(); at += n) {
      n = std::min<std::size_t>(random.below(round < 25 ? 50 : 9000), data.size() - at);
      hash.update(std::span(data).subspan(at, n));
    }
    EXPECT_EQ(hash.digest(), whole);
    EXPECT_EQ(hash.digest(), whole) << "asking for it changes nothing";
    hash.reset();
    EXPECT_EQ(hash.digest(), 0u);
  }
}

TEST(Crc32c, Both_tables_agree_whatever_was_before) {
  test::generator random(34);
  const bytes data = random.bytes(600);
  for (std::size_t n = 0; n <= 600; ++n) {
    const auto before = static_cast<std::uint32_t>(random());
    EXPECT_EQ(tp::crc32c_small::of({data.data(), n}, before), tp::crc32c_fast::of({data.data(), n}, before)) << n;
  }
}

TEST(Crc32c, Policies_say_what_they_want_with_each_chunk) {
  static_assert(std::same_as<tp::chunk_hash_of<tp::chunk_crc32c_and_image_digest>, by_table>);
  static_assert(std::same_as<tp::chunk_crc32c_and_image_digest::hash_type, tp::xxhash_digest>);
  static_assert(std::same_as<tp::chunk_hash_of<tp::chunk_digest>, tp::xxhash_digest>);
  static_assert(tp::chunk_digest_kind<tp::unverified> == tp::digest_kind::none);
  // a version is XXH3-64, so an owner's and a whole's hash is no other
  static_assert(!tp::integrity_policy<tp::basic_image_digest<by_table>> &&
                !tp::integrity_policy<tp::basic_chunk_digest<by_table>>);
  EXPECT_EQ(static_cast<int>(tp::digest_kind::crc32c), 2) << "the wire's number";
}

}  // namespace crc32c_test
