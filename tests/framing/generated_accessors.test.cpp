// The library puts the fields of control frames where the accessors do that `capnp` generates from the schema, and finds them there.
#include <tensorpull/core/byte_order.hpp>
#include "support/generated_codec.hpp"
#include "support/messages.hpp"
#include "support/random.hpp"

#include <tensorpull/framing/word_framing.hpp>

namespace {

using namespace test;

/// Messages of every kind whose numbers are random, among them the greatest; lists of every length from none to many.
std::vector<tp::frame> random_messages(generator& random, std::vector<std::vector<std::string_view>>& names, std::vector<std::vector<tp::schema_row>>& rows) {
  auto all = every_message();
  for (tp::frame& m : all) {
    const auto number = [&] { return random.below(4) == 0 ? ~std::uint64_t{0} : random(); };
    m.id = static_cast<std::uint32_t>(number());
    m.ref = {number(), number()};
    m.version = number(), m.nonce = number(), m.fingerprint = number(), m.digest = number(), m.offset = number();
    m.image_bytes = number(), m.data_start = number(), m.tensors = number();
    m.length = static_cast<std::uint32_t>(number()), m.delay_ms = static_cast<std::uint32_t>(number());
    m.application = static_cast<std::uint32_t>(number()), m.window = static_cast<std::uint16_t>(number());
    m.flag = random.below(2) == 0;
    m.recipient = {number()}, m.reason = static_cast<std::uint32_t>(number()), m.chunk_digest = static_cast<tp::digest_kind>(random.below(3));
    m.status = static_cast<tp::status>(random.below(12));
    names.emplace_back();
    for (std::uint64_t n = random.below(6); n > 0; --n) names.back().push_back(std::string_view("a name of 24 characters.").substr(random.below(25)));
    m.names = names.back();
    rows.emplace_back();
    for (std::uint64_t n = random.below(6); n > 0; --n) rows.back().push_back({names.back().empty() ? "" : names.back()[0], "BF16", std::span(some_shape).first(random.below(4))});
    m.rows = rows.back();
    m.ranges = std::span(some_ranges).first(random.below(3));
    m.references = std::span(some_references).first(random.below(3));
    m.body = std::span(some_body).first(random.below(14));
  }
  return all;
}

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

/// Both framings and the generated readers agree on a frame, whatever it is. What they read is compared as the generated builders write it.
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
      tp::store_le64(f.bytes().data() + 8 * word, pick == 0 ? random() : pick == 1 ? was ^ std::uint64_t{1} << random.below(64)
                                                                     : pick == 2   ? f.word(random.below(f.size() / 8))
                                                                                   : list_pointer(static_cast<std::int32_t>(random.below(8)) - 4, static_cast<list_size>(random.below(8)), static_cast<std::uint32_t>(random.below(20))));
      expect_agreement(f);
      if (HasFatalFailure()) FAIL() << "kind " << static_cast<int>(m.kind) << ", word " << word << ": " << std::hex << f.word(word);
      tp::store_le64(f.bytes().data() + 8 * word, was);
    }
  }
}

}  // namespace
