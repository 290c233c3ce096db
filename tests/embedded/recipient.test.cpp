// The recipient of small machines against the endpoint and the owner of hosts, as they are.
#include "embedded/small_pair.hpp"

namespace recipient_test {

using namespace test;

TEST(EmbeddedRecipient, Takes_what_an_owner_of_hosts_publishes) {
  small_pair pair;
  const model source = fill(list_of<net>(), 1);
  landed_net<> small;
  const auto id = pair.left->publish(source, {1, 2}, 1);
  const auto done = pair.pull(small.recipient);
  ASSERT_TRUE(confirmed(done));
  EXPECT_EQ(done->unconfirmed_because, errc{});
  EXPECT_EQ(done->bytes, source.schema().image_bytes);
  EXPECT_EQ(done->version, version_of(source));
  EXPECT_EQ(done->digest, version_of(source));
  EXPECT_EQ(done->fingerprint, source.schema().fingerprint);
  EXPECT_EQ(data_of(small.target), data_of(source));
  EXPECT_TRUE(small.guards_intact());
  EXPECT_EQ(pair.left->references.status_of(id)->completed, 1u);
  EXPECT_EQ(pair.left->references.status_of(id)->bytes_sent, source.schema().image_bytes) << "nothing is fetched twice";
}

TEST(EmbeddedRecipient, Says_whether_it_was_given_the_version_or_believed_the_owner) {
  const model source = fill(list_of<net>(), 1);
  tp::embedded_pull known = net_pull;
  known.version = version_of(source);
  for (const auto& what : {net_pull, known}) {
    small_pair pair;
    landed_net<> small(what);
    pair.left->publish(source, {1, 2}, 1);
    const auto done = pair.pull(small.recipient);
    ASSERT_TRUE(completed(done));
    EXPECT_EQ(done->believed, what.version == 0);
  }
}

template <std::size_t ChunkBytes>
void with_chunks_of(std::size_t datagram_bytes) {
  SCOPED_TRACE(std::to_string(ChunkBytes) + " in " + std::to_string(datagram_bytes));
  for (const bool noisy : {false, true}) {
    small_pair pair(noisy ? small_link{datagram_bytes, 0.05, 0.05, 3, 20} : small_link{datagram_bytes}, ChunkBytes);
    const model source = fill(list_of<net>(), 2);
    tp::embedded_pull of = net_pull;
    of.timeout_ms = 60'000;
    landed_net<ChunkBytes> small(of);
    pair.left->publish(source, {1, 2}, 1);
    std::size_t longest = 0;
    pair.meddle = [&](byte_span d, bool down) {
      if (down) longest = std::max(longest, d.size());
      return true;
    };
    ASSERT_TRUE(confirmed(pair.pull(small.recipient)));
    EXPECT_EQ(data_of(small.target), data_of(source));
    EXPECT_TRUE(small.guards_intact());
    EXPECT_LE(longest, std::max<std::size_t>(decltype(small.recipient)::max_in, datagram_bytes >= 152 ? 152 : 0));
    constexpr std::size_t asked = decltype(small.recipient)::answer_bytes;
    if (asked >= 128 && asked <= datagram_bytes && asked < source.schema().image_bytes) {
      EXPECT_EQ(longest, asked) << "a line is held to the answers that are asked for";
    }
    EXPECT_EQ(pair.status().completed, 1u);
  }
}
TEST(EmbeddedRecipient, Takes_chunks_of_any_length_in_datagrams_of_any_length) {
  with_chunks_of<8>(128);
  with_chunks_of<40>(120);
  with_chunks_of<48>(128);
  with_chunks_of<64>(144);
  with_chunks_of<64>(128);  // the owner's cap is less
  with_chunks_of<72>(152);
  with_chunks_of<168>(248);
  with_chunks_of<176>(256);
  with_chunks_of<512>(640);
  with_chunks_of<512>(200);
  with_chunks_of<4096>(65'000);
}
TEST(EmbeddedRecipient, A_refusal_of_the_owner_has_a_name) {
  const model source = fill(list_of<net>(), 1), second = fill(list_of<net>(), 2);
  {
    small_pair pair;
    landed_net<> small;
    EXPECT_EQ(code_of(pair.pull(small.recipient)), errc::unknown_reference);
    EXPECT_EQ(small.recipient.outcome().error().at, 0u);
    EXPECT_EQ(pair.asked, 1u);
  }
  for (const bool withdrawn : {false, true}) {
    small_pair pair;
    landed_net<64> small;
    pair.left->publish(source);
    ASSERT_TRUE(pair.run_until(small.recipient, [&] { return small.recipient.landed_bytes() > 1'500; }));
    if (withdrawn) {
      EXPECT_TRUE(pair.left->references.withdraw({1, 2}, 77));
    } else {
      pair.left->publish(second);
    }
    EXPECT_EQ(code_of(pair.pull(small.recipient)), withdrawn ? errc::withdrawn : errc::stale_version);
    EXPECT_EQ(small.recipient.outcome().error().at, small.recipient.landed_bytes());
    EXPECT_EQ(small.recipient.outcome().error().system, withdrawn ? 77 : 0);
  }
  {
    small_pair pair;
    tp::embedded_pull of = net_pull;
    of.version = 5;
    landed_net<> small(of);
    pair.left->publish(source);
    EXPECT_EQ(code_of(pair.pull(small.recipient)), errc::stale_version);
    of.version = version_of(source);
    landed_net<> right(of, 0x9999'0000'0000'0000);
    EXPECT_TRUE(succeeded(pair.pull(right.recipient)));
  }
}
TEST(EmbeddedRecipient, An_image_without_a_digest_is_refused_unless_it_is_asked_for) {
  for (const bool unverified : {false, true}) {
    small_pair pair;
    const model source = fill(list_of<net>(), 1);
    tp::embedded_pull of = net_pull;
    of.unverified = unverified;
    landed_net<> small(of);
    pair.left->publish(source, {1, 2}, 1, false);
    ASSERT_TRUE(pair.run(small.recipient));
    if (!unverified) {
      EXPECT_EQ(code_of(small.recipient.outcome()), errc::not_verifiable);
      EXPECT_EQ(small.recipient.landed_bytes(), 0u);
      EXPECT_EQ(pair.status().cancelled, 1u);
      continue;
    }
    ASSERT_TRUE(small.recipient.outcome());
    EXPECT_EQ(small.recipient.outcome()->outcome, tp::outcome::completed_unverified);
    EXPECT_TRUE(small.recipient.outcome()->confirmed);
    EXPECT_EQ(data_of(small.target), data_of(source));
    EXPECT_EQ(pair.status().completed_unverified, 1u);
  }
}
TEST(EmbeddedRecipient, A_program_that_gives_up_says_so) {
  small_pair pair;
  const model source = fill(list_of<net>(), 1);
  landed_net<64> small;
  pair.left->publish(source, {1, 2}, 2);
  ASSERT_TRUE(pair.run_until(small.recipient, [&] { return small.recipient.landed_bytes() > 1'500; }));
  small.recipient.cancel(5);
  EXPECT_FALSE(small.recipient.ended()) << "the owner has to hear of it";
  EXPECT_EQ(code_of(pair.pull(small.recipient)), errc::cancelled);
  EXPECT_EQ(pair.status().cancelled, 1u);
  landed_net<64> before;
  before.recipient.cancel();
  EXPECT_TRUE(before.recipient.ended()) << "there is nobody to tell";
}
TEST(EmbeddedRecipient, A_busy_owner_is_asked_again_after_its_delay_for_as_long_as_the_timeout) {
  using limits = tp::default_limits;
  const model source = fill(list_of<net>(), 1);
  for (const bool frees : {true, false}) {
    small_pair pair;
    tp::embedded_pull of = net_pull;
    of.timeout_ms = 60'000;
    landed_net<> small(of);
    std::uint32_t refusals = 0;
    // an owner whose table is full, as the transport says it
    pair.left->publish(source);
    pair.meddle = [&](byte_span d, bool down) {
      if (down || (frees && refusals == 3)) return true;
      ++refusals;
      tp::frame no;
      no.kind = tp::frame_kind::refused, no.status = tp::status::busy,
      no.id = static_cast<std::uint32_t>(tp::load_le32(d.data() + 16)), no.ref = {1, 2},
      no.delay_ms = static_cast<std::uint32_t>(limits::busy_delay.count());
      std::array<std::byte, 80> bytes;
      EXPECT_TRUE(tp::word_framing::encode(no, bytes));
      const auto hold = std::move(pair.meddle);
      small.recipient.received(bytes, pair.now);
      pair.meddle = std::move(hold);
      return false;
    };
    const auto before = pair.now;
    ASSERT_TRUE(pair.run(small.recipient));
    if (frees) {
      EXPECT_TRUE(succeeded(small.recipient.outcome()));
      EXPECT_GE(pair.now - before, 3 * static_cast<std::uint32_t>(limits::busy_delay.count()));
    } else {
      EXPECT_EQ(code_of(small.recipient.outcome()), errc::busy);
      EXPECT_LE(pair.now - before, of.timeout_ms);
    }
  }
}
TEST(EmbeddedRecipient, Without_an_answer_it_gives_up_by_name_within_its_time) {
  for (const bool strange : {false, true}) {
    small_pair pair;
    pair.left.reset();
    landed_net<> small;
    const std::array<std::byte, 96> noise{std::byte{1}};  // two segments: a frame of another layout
    const auto before = pair.now;
    if (strange)
      pair.meddle = [&](byte_span, bool) {
        small.recipient.received(noise, pair.now);
        return true;
      };
    EXPECT_EQ(code_of(pair.pull(small.recipient)), strange ? errc::unsupported_layout : errc::timed_out);
    EXPECT_EQ(pair.now - before, net_pull.timeout_ms + 1) << "the owner is not told, since it was never heard";
    EXPECT_EQ(pair.asked, net_pull.timeout_ms / net_pull.retry_ms);
  }
  small_pair pair;
  const model source = fill(list_of<net>(), 1);
  landed_net<64> small;
  pair.left->publish(source);
  ASSERT_TRUE(pair.run_until(small.recipient, [&] { return small.recipient.landed_bytes() > 1'500; }));
  pair.left.reset();
  pair.asked = 0;
  EXPECT_EQ(code_of(pair.pull(small.recipient)), errc::timed_out);
  EXPECT_EQ(small.recipient.outcome().error().at, small.recipient.landed_bytes());
}
TEST(EmbeddedRecipient, A_BOOL_that_is_none_ends_the_transfer_and_memory_of_bool_stays_bool) {
  small_pair pair;
  model source = fill(list_of<net>(), 1);
  for (std::size_t i = 0; i < source.schema().tensor_count; ++i)
    if (source.schema().tensors[i].type == dtype::boolean) source.destination().address(i)[4] = std::byte{0x80};
  landed_net<> small;
  pair.left->publish(source);
  EXPECT_EQ(code_of(pair.pull(small.recipient)), errc::value_out_of_range);
  unsigned char held = 0;
  std::memcpy(&held, &small.target.mask[4], 1);
  EXPECT_EQ(held, 1);
}

}  // namespace recipient_test
