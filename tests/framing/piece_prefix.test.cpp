// The ten words before a piece, and those of `taken`, are what the Cap'n Proto library itself would write, and nothing
// else is taken for them.
#include "support/frames.hpp"
#include "support/random.hpp"
#include "support/words.hpp"

#include <tensorpull/framing/protocol.capnp.h>
#include <tensorpull/framing/detail/piece_prefix.hpp>

#include <capnp/serialize.h>

namespace piece_prefix_test {

using namespace test;
using prefix = tp::detail::piece_prefix;
using tp::detail::piece;

TEST(PiecePrefix, Equals_what_the_library_writes) {
  generator random(1);
  for (std::uint32_t n = 0; n < 100; ++n) {
    const auto payload = random.bytes(n);
    const piece p{tp::frame_kind::piece, 0x1122334455667788, 0x99aabbcc, 0xddeeff00, 0xffffffff, n};
    byte_vector ours(prefix::bytes);
    prefix::write(p, std::span(ours).first<prefix::bytes>());
    ours.insert(ours.end(), payload.begin(), payload.end());
    ours.resize((ours.size() + 7) / 8 * 8);
    capnp::MallocMessageBuilder builder(128);
    auto theirs = builder.initRoot<tp::wire::Frame>().initPiece();
    theirs.setSender(p.sender), theirs.setNumber(p.number), theirs.setOffset(p.offset), theirs.setTotal(p.total);
    theirs.setPayload(kj::arrayPtr(reinterpret_cast<const kj::byte*>(payload.data()), payload.size()));
    const auto words = capnp::messageToFlatArray(builder);
    ASSERT_EQ(ours.size(), words.asBytes().size()) << n;
    ASSERT_EQ(std::memcmp(ours.data(), words.begin(), ours.size()), 0) << n;
    ASSERT_TRUE(prefix::announced(ours));
    constexpr auto what = tp::frame_kind::piece;
    EXPECT_EQ((tp::detail::field_in<what, &piece::sender>(ours.data())), p.sender);
    EXPECT_EQ((tp::detail::field_in<what, &piece::number>(ours.data())), p.number);
    EXPECT_EQ((tp::detail::field_in<what, &piece::offset>(ours.data())), p.offset);
    EXPECT_EQ((tp::detail::field_in<what, &piece::total>(ours.data())), p.total);
    const auto read = prefix::read(const_byte_span(ours).first<prefix::bytes>());
    ASSERT_EQ(read.has_value(), n <= 0xffffffff - 0xddeeff00u);
    EXPECT_EQ(read->length, n);
    EXPECT_EQ(read->offset, p.offset);
  }
  capnp::MallocMessageBuilder builder(128);
  auto theirs = builder.initRoot<tp::wire::Frame>().initTaken();
  theirs.setSender(5), theirs.setNumber(6), theirs.setOffset(7);
  const auto words = capnp::messageToFlatArray(builder);
  std::array<std::byte, prefix::bytes> ours;
  prefix::write({tp::frame_kind::taken, 5, 6, 7, 0, 0}, ours);
  ASSERT_EQ(words.asBytes().size(), ours.size());
  EXPECT_EQ(std::memcmp(ours.data(), words.begin(), ours.size()), 0);
}

TEST(PiecePrefix, F17_an_end_over_a_stream_refuses_a_piece_by_name) {
  for (const auto kind : {tp::frame_kind::piece, tp::frame_kind::taken}) {
    alignas(8) std::array<std::byte, prefix::bytes> bytes;
    prefix::write({kind, 5, 6, 7, 7, 0}, bytes);
    EXPECT_FALSE(tp::detail::payload_prefix::announces_payload(bytes));
    tp::frame m;
    tp::word_framing::decode_storage words;
    tp::capnp_framing::decode_storage library;
    EXPECT_EQ(tp::word_framing::decode(bytes, m, words).error().code, tp::errc::unexpected_frame);
    EXPECT_EQ(tp::capnp_framing::decode(bytes, m, library).error().code, tp::errc::unexpected_frame);
  }
}

TEST(PiecePrefix, F17_other_layouts_and_lengths_that_disagree_are_refused) {
  const auto read = [](auto change) {
    alignas(8) std::array<std::byte, prefix::bytes> bytes;
    prefix::write({tp::frame_kind::piece, 5, 6, 8, 24, 16}, bytes);
    std::array<std::uint64_t, 10> w;
    for (std::size_t i = 0; i < 10; ++i) w[i] = tp::load_le64(bytes.data() + 8 * i);
    change(w);
    for (std::size_t i = 0; i < 10; ++i) tp::store_le64(bytes.data() + 8 * i, w[i]);
    return prefix::read(bytes);
  };
  EXPECT_TRUE(read([](auto&) {}));
  EXPECT_FALSE(read([](auto& w) { w[9] += 4; })) << "another list";
  EXPECT_FALSE(read([](auto& w) { w[9] += 8ull << 35; })) << "longer than its segment";
  EXPECT_FALSE(read([](auto& w) { w[0] += 1ull << 32; })) << "a segment that is longer than its payload";
  EXPECT_FALSE(read([](auto& w) { w[5] = 23; })) << "beyond the whole";
  EXPECT_FALSE(read([](auto& w) { w[4] |= ~0ull << 32; })) << "an offset beyond the whole";
}

}  // namespace piece_prefix_test
