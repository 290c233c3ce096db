// How long a recipient waits before it tries again, and the cursor that it can keep.
#include "support/pair.hpp"

#include <tensorpull/consumers/resume_cursor.hpp>
#include <tensorpull/protocol/retry.hpp>

namespace retry_test {

using namespace test;

TEST(Retry, Delays_double_up_to_the_cap_and_are_spread_over_their_upper_half) {
  tp::retry_state s({.retries = 10, .first_delay = 100ms, .longest_delay = 1000ms});
  for (const auto whole : {100ms, 200ms, 400ms, 800ms, 1000ms, 1000ms}) {
    ASSERT_TRUE(s.failed());
    EXPECT_EQ(s.delay(0), whole);
    EXPECT_GE(s.delay(~std::uint64_t{0}), whole / 2);
    EXPECT_LT(s.delay(~std::uint64_t{0}), whole / 2 + 2ms);
  }
}
TEST(Retry, Tries_are_counted_from_the_last_success) {
  tp::retry_state s({.retries = 2});
  for (int round = 0; round < 5; ++round) {
    EXPECT_TRUE(s.failed());
    EXPECT_TRUE(s.failed());
    s.succeeded();
  }
  EXPECT_TRUE(s.failed());
  EXPECT_TRUE(s.failed());
  EXPECT_FALSE(s.failed());
  EXPECT_FALSE(tp::retry_state(tp::retry_policy{.retries = 0}).failed());
}
TEST(Retry, Progress_begins_anew_an_error_that_is_no_time_out_ends_at_once_and_a_busy_owner_has_a_budget) {
  tp::retry_state p({.retries = 1, .first_delay = 10ms, .longest_delay = 10ms}, 1000ms, 5);
  EXPECT_TRUE(p.after(errc::timed_out, 5, 0ms, 0));
  EXPECT_FALSE(p.after(errc::timed_out, 5, 0ms, 0)) << "no progress since";
  EXPECT_FALSE(p.after(errc::timed_out, 104, 0ms, 0, 100)) << "too few bytes";
  EXPECT_TRUE(p.after(errc::timed_out, 105, 0ms, 0, 100));
  EXPECT_TRUE(p.after(errc::connection_lost, 106, 0ms, 0));
  EXPECT_FALSE(p.after(errc::schema_mismatch, 1000, 0ms, 0));
  EXPECT_FALSE(p.after(errc::withdrawn, 2000, 0ms, 0));
  tp::retry_state q({.retries = 0, .first_delay = 10ms, .longest_delay = 10ms}, 1000ms, 0);
  int asked = 0;
  for (; const auto wait = q.after(errc::busy, 0, 100ms, 0); ++asked) EXPECT_EQ(*wait, 100ms);
  EXPECT_EQ(asked, 9);
  EXPECT_TRUE(q.after(errc::busy, 1, 100ms, 0)) << "it went on meanwhile";
  EXPECT_FALSE(q.after(errc::busy, 1, std::chrono::milliseconds::max(), 0));
}
TEST(Retry, Extreme_policies_do_not_overflow) {
  tp::retry_state s({.retries = ~0u,
                     .first_delay = std::chrono::milliseconds::max(),
                     .longest_delay = std::chrono::milliseconds::max()});
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(s.failed());
    EXPECT_GE(s.delay(12345), std::chrono::milliseconds::max() / 2);
  }
}
TEST(Retry, T10_recipients_that_were_cut_off_together_come_back_apart) {
  generator random(9);
  std::vector<std::uint64_t> delays;
  for (int i = 0; i < 64; ++i) {
    tp::retry_state s({.first_delay = 10s});
    s.failed();
    delays.push_back(static_cast<std::uint64_t>(s.delay(random()).count()));
  }
  std::sort(delays.begin(), delays.end());
  EXPECT_GT(delays.back() - delays.front(), 4'000u);
  EXPECT_GT(std::unique(delays.begin(), delays.end()) - delays.begin(), 50);
}

TEST(ResumeCursor, Forty_eight_bytes_there_and_back) {
  const tp::resume_cursor c{{1, ~0ull}, 3, 4, 5, 6};
  const auto bytes = tp::encode(c);
  EXPECT_EQ(bytes.size(), 48u);
  EXPECT_EQ(*tp::decode_cursor(bytes), c);
  EXPECT_FALSE(tp::decode_cursor(std::span(bytes).first(47)));
  const std::array<std::byte, 48> nothing{};
  EXPECT_EQ(code_of(tp::decode_cursor(nothing)), errc::bad_frame);
  auto no_version = c;
  no_version.version = 0;
  EXPECT_FALSE(tp::decode_cursor(tp::encode(no_version)));
}

/// A transfer over one connection after the other, each cut after `most` rounds.
struct interrupted {
  const model source = mixed_model().fill(1);
  model mine = mixed_model();
  pair p{cut{97}};
  tp::land to{mine.destination()};
  tp::ref_id ref = p.left.publish(source, {1, 2}, 1);

  /// Each connection is cut after so many rounds. How many there were.
  template <class Transfer>
  int pull(Transfer& t, int rounds) {
    tp::no_transfer idle;
    int connections = 0;
    for (; !t.ended() && connections < 5000; ++connections) {
      p.reconnect();
      p.right.end.begin_pull();
      for (int i = 0; i < rounds && !t.ended() && p.pump(idle, t); ++i) {
      }
      if (t.ended()) break;
      p.right.end.end_pull(t);
      t.restart();
    }
    return connections;
  }
};

template <class Integrity>
void expect_exact_over_reconnections(int rounds, std::uint32_t window) {
  interrupted x;
  tp::pull_request request{.ref = {1, 2}, .window = window};
  request.recipient = {77};
  transfer<tp::fixed_bytes<1024>, Integrity> t(x.to, request, {}, 1);
  const int connections = x.pull(t, rounds);
  ASSERT_TRUE(t.ended());
  ASSERT_TRUE(succeeded(t.outcome()));
  EXPECT_GT(connections, 1);
  EXPECT_TRUE(x.mine.same_tensors(x.source) && x.mine.guards_intact());
  EXPECT_EQ(x.p.left.status().acquired, 1u) << "one recipient, however often it came";
  EXPECT_TRUE(x.p.left.references.settled({1, 2}));
  // what a cut costs: of each chunk that was asked for at once, what was on its way
  EXPECT_LE(x.p.left.status().bytes_sent,
            x.source.schema().image_bytes + static_cast<std::uint64_t>(connections) * window * 1024)
      << rounds;
}
TEST(Transfer, T4_reconnections_lose_nothing_that_has_landed) {
  for (const std::uint32_t window : {1u, 4u}) {
    for (const int rounds : {7, 9, 12, 17, 30}) {
      expect_exact_over_reconnections<tp::image_digest>(rounds, window);
      expect_exact_over_reconnections<tp::unverified>(rounds, window);
    }
    for (const int rounds : {18, 21, 27}) {  // at least a chunk each time
      expect_exact_over_reconnections<tp::chunk_and_image_digest>(rounds, window);
      expect_exact_over_reconnections<tp::chunk_digest>(rounds, window);
    }
  }
}

TEST(Transfer, C3_of_a_thousand_publications_under_one_reference_every_completion_is_exactly_one) {
  interrupted x;
  generator random(3);
  // in turn, since one is read while the other is filled
  model published[2] = {mixed_model().fill(1), mixed_model().fill(2)};
  std::vector<std::pair<std::uint64_t, std::uint64_t>> versions;  // and what they were filled from
  const auto publish = [&] {
    const std::uint64_t seed = 100 + versions.size();
    model& next = published[versions.size() % 2].fill(seed);
    const auto done = x.p.left.references.publish(next.source(), version_of(next), true, {1, 2}, 0);
    if (done) versions.emplace_back(version_of(next), seed);
    else EXPECT_EQ(code_of(done), errc::busy) << "a chunk of the last one is half sent";
    tp::settlement s;
    for (tp::callback<const tp::settlement&> nobody; x.p.left.references.next_settled(s, nobody);)
      if (x.p.left.references.returned(s.id)) x.p.left.references.released(s.id);
  };
  int completed = 0, stale = 0, resumed = 0;
  tp::no_transfer idle;
  for (int pulls = 0; versions.size() < 1000 && pulls < 20'000; ++pulls) {
    publish();
    tp::pull_request request{.ref = {1, 2}};
    request.recipient = {77};
    tp::resume_cursor kept;
    for (int processes = 0; processes < 1000; ++processes) {  // one pull, by one process after the other
      tp::land to(x.mine.destination());
      transfer<> t(x.to, request, {}, 1);
      if (kept) resumed += t.resume(kept);
      x.p.reconnect();
      x.p.right.end.begin_pull();
      const std::uint64_t rounds = 1 + random.below(120);
      bool moves = true;
      for (std::uint64_t i = 0; i < rounds && !t.ended() && moves; ++i) {
        if (versions.size() < 1000 && random.below(150) == 0) publish();
        moves = x.p.pump(idle, t);
      }
      kept = t.cursor();
      x.p.right.end.end_pull(t);
      if (!t.ended()) continue;
      const auto done = t.outcome();
      if (!done) {
        ASSERT_EQ(code_of(done), errc::stale_version);
        ++stale;
        break;
      }
      ++completed;
      const auto which = std::find_if(versions.begin(), versions.end(),
                                      [&](const auto& v) { return v.first == done->version; });
      ASSERT_NE(which, versions.end());
      ASSERT_TRUE(x.mine.same_tensors(mixed_model().fill(which->second)));
      break;
    }
  }
  EXPECT_EQ(versions.size(), 1000u);
  EXPECT_GT(completed, 100);
  EXPECT_GT(stale, 100);
  EXPECT_GT(resumed, 100);
  EXPECT_TRUE(x.mine.guards_intact());
}

/// Adds up what it is told that is complete.
struct summing : tp::land {
  using tp::land::land;
  tp::result<void> chunk(std::uint64_t offset, std::uint64_t length) noexcept {
    gap = gap || offset != told;
    told = offset + length;
    return {};
  }
  std::uint64_t told = 0;
  bool gap = false;
};
TEST(Transfer, A_consumer_is_told_of_every_byte_as_part_of_a_chunk_however_often_the_connection_was_lost) {
  for (const int rounds : {7, 9, 12, 17}) {
    interrupted x;
    summing to(x.mine.destination());
    tp::transfer<summing, tp::fixed_bytes<1024>, tp::image_digest> t(to, {.ref = {1, 2}}, {}, 1);
    (void)x.pull(t, rounds);
    EXPECT_FALSE(to.gap);
    EXPECT_EQ(to.told, x.source.schema().image_bytes);
  }
}

TEST(Transfer, A_cursor_resumes_in_another_program_and_is_not_believed_where_the_bytes_differ) {
  const std::uint64_t all = mixed_model().schema().image_bytes;
  for (const bool edited : {false, true})
    for (const int rounds : {20, 45, 70}) {
      interrupted x;
      tp::resume_cursor kept;
      {
        tp::pull_request request{.ref = {1, 2}};
        request.recipient = {5};
        transfer<> t(x.to, request, {}, 1);
        x.p.right.end.begin_pull();
        tp::no_transfer idle;
        for (int i = 0; i < rounds; ++i) x.p.pump(idle, t);
        kept = t.cursor();
        x.p.right.end.end_pull(t);
      }
      ASSERT_TRUE(kept) << rounds;
      ASSERT_LT(kept.offset, all);
      x.p.reconnect();
      if (edited) x.mine.flip_first_byte();
      tp::land to(x.mine.destination());
      tp::pull_request request{.ref = {1, 2}};
      request.recipient = {5};
      transfer<> t(to, request, {}, 1);
      const bool header_alone = kept.offset <= x.source.schema().header_bytes;
      EXPECT_EQ(t.resume(kept), !edited || header_alone);
      const auto sent_before = x.p.left.status().bytes_sent;
      const auto done = x.p.pull(t);
      ASSERT_TRUE(completed(done));
      EXPECT_TRUE(x.mine.same_tensors(x.source));
      EXPECT_EQ(x.p.left.status().bytes_sent - sent_before, edited && !header_alone ? all : all - kept.offset);
    }
}

/// Takes a chunk once only.
struct without_rewind : tp::land {
  using tp::land::land;
  void rewind(std::uint64_t) = delete;
};
/// Pulls in chunks of 1,024 bytes, of which the third comes damaged, for `rounds` or to the end; gives the cursor.
template <class Consumer = tp::land>
tp::resume_cursor cursor_after_damage(interrupted& x, int rounds) {
  x.p.owner_lies = [](byte_vector& f) {
    if (kind_of(f) != tp::frame_kind::chunk) return;
    const auto m = tp::detail::payload_prefix::read(std::span<const std::byte, 80>(f.data(), 80));
    if (m->offset == 2048) f[80] ^= std::byte{1};
  };
  tp::pull_request request{.ref = {1, 2}, .window = 1};
  request.recipient = {5};
  Consumer to(x.mine.destination());
  tp::transfer<Consumer, tp::fixed_bytes<1024>, tp::chunk_and_image_digest> t(to, request, {}, 1);
  x.p.right.end.begin_pull();
  tp::no_transfer idle;
  for (int i = 0; i < rounds && !t.ended(); ++i) x.p.pump(idle, t);
  EXPECT_TRUE(rounds < 1000 || t.outcome().error() == errc::chunk_digest_mismatch);
  const auto kept = t.cursor();
  x.p.right.end.end_pull(t);
  x.p.reconnect();
  x.p.owner_lies = {};
  return kept;
}
void expect_to_fetch_only_the_rest(interrupted& x, const tp::resume_cursor& kept) {
  tp::land to(x.mine.destination());
  tp::pull_request request{.ref = {1, 2}};
  request.recipient = {5};
  transfer<tp::fixed_bytes<1024>, tp::chunk_and_image_digest> t(to, request, {}, 1);
  ASSERT_EQ(t.resume(kept), bool(kept));
  const auto before = x.p.left.status().bytes_sent;
  const auto done = x.p.pull(t);
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(x.mine.same_tensors(x.source));
  EXPECT_EQ(x.p.left.status().bytes_sent - before, x.source.schema().image_bytes - kept.offset);
}
TEST(Transfer, A_cursor_does_not_count_a_chunk_whose_own_digest_was_wrong) {
  interrupted x;
  const auto kept = cursor_after_damage(x, 1'000'000);
  EXPECT_EQ(kept.offset, 2048u);
  expect_to_fetch_only_the_rest(x, kept);
  interrupted y;
  EXPECT_FALSE(cursor_after_damage<without_rewind>(y, 1'000'000)) << "it cannot say what stood before the chunk";
}
TEST(Transfer, A_cursor_does_not_count_what_has_come_of_a_chunk_that_is_not_checked_yet) {
  std::uint64_t seen = 0;
  for (int rounds = 20; rounds < 90; ++rounds) {
    interrupted x;
    const auto kept = cursor_after_damage(x, rounds);
    EXPECT_EQ(kept.offset % 1024, 0u);
    EXPECT_LE(kept.offset, 2048u);
    seen |= kept.offset;
    expect_to_fetch_only_the_rest(x, kept);
    interrupted y;
    if (const auto other = cursor_after_damage<without_rewind>(y, rounds)) expect_to_fetch_only_the_rest(y, other);
    ASSERT_FALSE(testing::Test::HasFailure()) << rounds;
  }
  EXPECT_EQ(seen, 1024u | 2048u);
}

TEST(Transfer, A_cursor_goes_on_under_another_reference_if_the_version_is_given) {
  // The owner was started again, with the same model under a random reference.
  interrupted x;
  tp::resume_cursor kept;
  {
    transfer<> t(x.to, {.ref = {1, 2}}, {}, 1);
    x.p.right.end.begin_pull();
    tp::no_transfer idle;
    for (int i = 0; i < 45; ++i) x.p.pump(idle, t);
    kept = t.cursor();
    x.p.right.end.end_pull(t);
  }
  ASSERT_TRUE(kept);
  x.p.reconnect();
  x.p.left.publish(x.source, {7, 7});
  tp::land to(x.mine.destination());
  transfer<> unknown(to, {.ref = {7, 7}}, {}, 1);
  EXPECT_FALSE(unknown.resume(kept)) << "it may be of any version";
  transfer<> t(to, {.ref = {7, 7}, .version = version_of(x.source)}, {}, 1);
  ASSERT_TRUE(t.resume(kept));
  const auto before = x.p.left.status({7, 7}).bytes_sent;
  ASSERT_TRUE(completed(x.p.pull(t)));
  EXPECT_TRUE(x.mine.same_tensors(x.source));
  EXPECT_EQ(x.p.left.status({7, 7}).bytes_sent - before, x.source.schema().image_bytes - kept.offset);
  EXPECT_EQ(t.cursor().ref, (tp::ref_id{7, 7}));
}

TEST(Transfer, A_cursor_of_another_version_or_schema_resumes_nothing) {
  interrupted x;
  tp::pull_request request{.ref = {1, 2}, .version = version_of(x.source)};
  const std::uint64_t right = *tp::range_digest<tp::xxhash_digest>(x.source.source(), 0, 8);
  const tp::resume_cursor fits{{1, 2}, x.source.schema().fingerprint, version_of(x.source), 8, right};
  EXPECT_TRUE(transfer<>(x.to, request, {}, 1).resume(fits));
  for (int what = 0; what < 5; ++what) {
    tp::resume_cursor wrong = fits;
    if (what == 0) wrong = {};
    if (what == 1) ++wrong.fingerprint;
    if (what == 2) ++wrong.version;
    if (what == 3) wrong.offset = ~0ull;
    if (what == 4) ++wrong.digest;
    EXPECT_FALSE(transfer<>(x.to, request, {}, 1).resume(wrong)) << what;
  }
}

TEST(Transfer, Reconnecting_to_another_version_is_stale_and_never_a_mix) {
  interrupted x;
  tp::pull_request request{.ref = {1, 2}};
  request.recipient = {5};
  transfer<> t(x.to, request, {}, 1);
  x.p.right.end.begin_pull();
  tp::no_transfer idle;
  for (int i = 0; i < 40; ++i) x.p.pump(idle, t);
  ASSERT_FALSE(t.ended());
  const model other = mixed_model().fill(2);
  x.p.right.end.end_pull(t);
  x.p.reconnect();
  x.p.left.publish(other);
  t.restart();
  const auto done = x.p.pull(t);
  EXPECT_EQ(code_of(done), errc::stale_version);
}

}  // namespace retry_test
