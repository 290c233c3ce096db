// The ten words before a payload are what the Cap'n Proto library itself would write, and nothing else is taken for
// them.
#include <tensorpull/core/byte_order.hpp>
#include "support/allocation_counter.hpp"
#include "support/frames.hpp"
#include "support/random.hpp"
#include "support/results.hpp"

#include <tensorpull/framing/protocol.capnp.h>

#include <capnp/serialize.h>

namespace payload_prefix_test {

using namespace test;
using prefix = tp::detail::payload_prefix;

tp::frame some_chunk() {
  tp::frame m;
  m.kind = tp::frame_kind::chunk;
  m.id = 0x89abcdef;
  m.ref = {0x1122334455667788, 0x99aabbccddeeff00};
  m.version = 1, m.offset = 1ull << 50, m.nonce = ~0ull, m.digest = 0x5555;
  return m;
}

kj::Array<capnp::word> frame_of_the_library(const tp::frame& m, const_byte_span payload) {
  capnp::MallocMessageBuilder builder(static_cast<unsigned>(payload.size() / 8 + 64));
  auto f = builder.initRoot<tp::wire::Frame>();
  f.setId(m.id);
  auto c = f.initChunk();
  c.setRefHigh(m.ref.high);
  c.setRefLow(m.ref.low);
  c.setVersion(m.version);
  c.setOffset(m.offset);
  c.setNonce(m.nonce);
  c.setDigest(m.digest);
  c.setPayload(kj::arrayPtr(reinterpret_cast<const kj::byte*>(payload.data()), payload.size()));
  return capnp::messageToFlatArray(builder);
}

TEST(PayloadPrefix, Equals_what_the_library_writes) {
  generator random(1);
  std::vector<std::size_t> lengths;
  for (std::size_t n = 0; n <= 100; ++n) lengths.push_back(n);
  lengths.insert(lengths.end(), {4095, 4096, 65536, 1'000'003, 2'097'152, 9'999'999});
  for (const std::size_t n : lengths) {
    const auto payload = random.bytes(n);
    const frame ours = chunk_frame(some_chunk(), payload);
    const auto theirs = frame_of_the_library(some_chunk(), payload);
    ASSERT_EQ(ours.size(), theirs.asBytes().size()) << n;
    ASSERT_EQ(std::memcmp(ours.bytes().data(), theirs.begin(), ours.size()), 0) << n;
  }
}

TEST(PayloadPrefix, Survives_at_every_length_up_to_the_limit) {
  for (const std::uint32_t n : {0u, 1u, 7u, 8u, 9u, 4096u, 2'097'152u, 536'870'903u, 536'870'904u}) {
    tp::frame m = some_chunk();
    m.length = n;
    std::array<std::byte, prefix::bytes> bytes;
    prefix::write(m, bytes);
    ASSERT_TRUE(prefix::announces_payload(bytes));
    const auto back = prefix::read(bytes);
    ASSERT_TRUE(back) << n;
    EXPECT_EQ(std::tie(back->id, back->version, back->offset, back->nonce, back->digest, back->length),
              std::tie(m.id, m.version, m.offset, m.nonce, m.digest, m.length));
    EXPECT_EQ(back->ref, m.ref);
  }
}

errc read_error(std::array<std::byte, prefix::bytes> bytes, std::size_t word, std::uint64_t value) {
  tp::store_le64(bytes.data() + 8 * word, value);
  const auto m = prefix::read(bytes);
  EXPECT_FALSE(m);
  return m ? errc{} : m.error().code;
}

TEST(PayloadPrefix, L2_length_fields_that_differ_are_a_bad_frame) {
  tp::frame m = some_chunk();
  m.length = 100;
  std::array<std::byte, prefix::bytes> good;
  prefix::write(m, good);
  const std::uint64_t table = tp::load_le64(good.data()), list = tp::load_le64(good.data() + 72);
  for (const std::uint64_t words : {0ull, 1ull, 21ull, 23ull, 1000ull, 0xffffffffull})
    EXPECT_EQ(read_error(good, 0, words << 32), errc::bad_frame) << words;
  for (const std::uint64_t length : {0ull, 96ull, 105ull, 1000ull, 536'870'904ull})
    EXPECT_EQ(read_error(good, 9, (list & 0x7ffffffff) | length << 35), errc::bad_frame) << length;
  EXPECT_EQ(read_error(good, 9, (list & 0x7ffffffff) | 536'870'905ull << 35), errc::too_large);
  EXPECT_EQ(read_error(good, 9, ~0ull), errc::unsupported_layout);
  EXPECT_EQ(read_error(good, 0, table + (1ull << 32)), errc::bad_frame);
}

TEST(PayloadPrefix, A_payload_pointer_of_any_other_layout_is_unsupported) {
  tp::frame m = some_chunk();
  m.length = 100;
  std::array<std::byte, prefix::bytes> good;
  prefix::write(m, good);
  for (const std::uint64_t pointer :
       {std::uint64_t{0}, list_pointer(1, of_byte, 100), list_pointer(-1, of_byte, 100), list_pointer(0, of_eight, 100),
        list_pointer(0, of_composite, 12), list_pointer(0, of_void, 100), far_pointer(0, 3, false),
        far_pointer(1, 0, true), struct_pointer(0, 7, 1), std::uint64_t{3}})
    EXPECT_EQ(read_error(good, 9, pointer), errc::unsupported_layout) << std::hex << pointer;
}

TEST(PayloadPrefix, A_chunk_in_any_other_layout_is_not_announced_and_not_decoded) {
  tp::frame m = some_chunk();
  byte_vector payload(24, std::byte{3});
  const frame good = chunk_frame(m, payload);
  words shifted{segment_table(13), struct_pointer(1, 7, 1), 0};  // a gap behind the root pointer
  words longer{segment_table(13), struct_pointer(0, 8, 1)};      // one data word more
  for (std::size_t i = 2; i < good.size() / 8; ++i) shifted.push_back(good.word(i));
  for (std::size_t i = 2; i < 9; ++i) longer.push_back(good.word(i));
  longer.push_back(0);
  for (std::size_t i = 9; i < good.size() / 8; ++i) longer.push_back(good.word(i));
  words two{segment_table(1) | 1, good.word(0) >> 32, far_pointer(1, 0, false)};  // the struct in a second segment
  for (std::size_t i = 1; i < good.size() / 8; ++i) two.push_back(good.word(i));
  for (const words& w : {shifted, longer, two}) {
    const frame f(w);
    EXPECT_FALSE(prefix::announces_payload(f.bytes()));
    EXPECT_FALSE(capnp_decode(f).empty()) << "the test's own frame is not valid";
    EXPECT_EQ(decode_error(f), errc::unsupported_layout);
  }
}

TEST(PayloadPrefix, Any_72_bytes_are_read_without_harm) {
  generator random(2);
  std::array<std::byte, prefix::bytes> bytes;
  for (int i = 0; i < 20'000; ++i) {
    random.fill(bytes);
    (void)prefix::read(bytes);
  }
  for (std::size_t n = 0; n < 24; ++n) EXPECT_FALSE(prefix::announces_payload(const_byte_span(bytes).first(n)));
}

}  // namespace payload_prefix_test
