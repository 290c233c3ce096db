// The library puts the fields of control frames where the accessors do that `capnp` generates from the schema, and
// finds them there.
#include <tensorpull/core/byte_order.hpp>
#include "support/generated_codec.hpp"
#include "support/random_messages.hpp"

#include <tensorpull/framing/word_framing.hpp>

namespace {

using namespace test;

TEST(GeneratedAccessors, Every_kind_has_the_bytes_that_the_generated_builders_write) {
  generator random(31);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::vector<std::string_view>> names;
    std::vector<std::vector<tp::schema_row>> rows;
    for (const tp::frame& m : random_messages(random, names, rows)) {
      const frame ours = encode(m);
      const auto theirs = generated::encode(m);
      ASSERT_EQ(ours.size(), 8 * theirs.size()) << "kind " << static_cast<int>(m.kind);
      ASSERT_EQ(std::memcmp(ours.bytes().data(), theirs.data(), ours.size()), 0) << "kind " << static_cast<int>(m.kind);
    }
  }
}

/// Both framings and the generated readers agree on a frame, whatever it is. What they read is compared as the
/// generated builders write it.
void expect_agreement(const frame& f) {
  const decoded ours(f);
  tp::frame theirs, ours_of_words;
  const auto lists = std::make_unique<tp::capnp_framing::decode_storage>();
  const auto more = std::make_unique<tp::word_framing::decode_storage>();
  const auto outcome = generated::decode(f.bytes(), theirs, *lists);
  const auto of_words = tp::word_framing::decode(f.bytes(), ours_of_words, *more);
  ASSERT_EQ(ours.outcome.has_value(), outcome.has_value());
  ASSERT_EQ(of_words.has_value(), outcome.has_value());
  if (!outcome) {
    EXPECT_EQ(ours.outcome.error().code, outcome.error().code);
    EXPECT_EQ(of_words.error().code, outcome.error().code);
    return;
  }
  ASSERT_EQ(ours.m.kind, theirs.kind);
  ASSERT_EQ(ours_of_words.kind, theirs.kind);
  ASSERT_EQ(generated::encode(ours.m), generated::encode(theirs));
  ASSERT_EQ(generated::encode(ours_of_words), generated::encode(theirs));
}

TEST(GeneratedAccessors, Readers_agree_on_every_kind_with_any_word_changed) {
  generator random(32);
  for (const tp::frame& m : every_message()) {
    frame f = encode(m);
    expect_agreement(f);
    for (int round = 0; round < 3000; ++round) {
      const std::size_t word = 1 + random.below(f.size() / 8 - 1);
      const std::uint64_t was = f.word(word), pick = random.below(4);
      tp::store_le64(f.bytes().data() + 8 * word, pick == 0   ? random()
                                                  : pick == 1 ? was ^ std::uint64_t{1} << random.below(64)
                                                  : pick == 2
                                                      ? f.word(random.below(f.size() / 8))
                                                      : list_pointer(static_cast<std::int32_t>(random.below(8)) - 4,
                                                                     static_cast<list_size>(random.below(8)),
                                                                     static_cast<std::uint32_t>(random.below(20))));
      expect_agreement(f);
      if (HasFatalFailure())
        FAIL() << "kind " << static_cast<int>(m.kind) << ", word " << word << ": " << std::hex << f.word(word);
      tp::store_le64(f.bytes().data() + 8 * word, was);
    }
  }
}

}  // namespace
