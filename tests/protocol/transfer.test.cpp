// Whole transfers over a memory pipe: every cut, chunk size, strategy, window and integrity policy lands the same
// bytes.
#include "support/pair.hpp"

namespace transfer_test {

using namespace test;

/// Pulls into a fresh model and checks everything that a good transfer promises.
template <class Integrity = tp::image_digest, class Chunking>
void expect_exact(pair& p, const model& source, Chunking chunking, tp::pull_request request = {{1, 2}},
                  std::size_t shift = 0) {
  model mine = mixed_model(shift);
  tp::land to(mine.destination());
  transfer<Chunking, Integrity> t(to, request, chunking, p.right.end.next_id());
  const auto before = p.left.status();
  const auto done = p.pull(t);
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(mine.same_tensors(source));
  EXPECT_TRUE(mine.guards_intact());
  EXPECT_EQ(done->bytes, source.schema().image_bytes);
  EXPECT_EQ(done->version, version_of(source));
  EXPECT_EQ(done->fingerprint, source.schema().fingerprint);
  const auto after = p.left.status();
  EXPECT_EQ(done->outcome, Integrity::whole ? tp::outcome::completed : tp::outcome::completed_unverified);
  // one connection is one recipient: it counts once, and one that has completed stays so
  EXPECT_EQ(after.completed, Integrity::whole || before.completed == 1 ? 1u : 0u);
  EXPECT_EQ(after.completed_unverified, 1u - after.completed);
  EXPECT_EQ(after.final(), 1u);
  EXPECT_EQ(done->digest, Integrity::whole ? version_of(source) : 0u);
}

TEST(Transfer, Every_cut_of_the_stream_lands_the_same_bytes) {
  generator random(4);
  for (const cut c : {cut{1}, cut{7}, cut{13}, cut{100}, cut{5000}, cut{}, cut{40, &random}, cut{3000, &random}}) {
    owning_pair p(c);
    expect_exact(p, p.source, tp::fixed_bytes<8>{});
    expect_exact(p, p.source, tp::fixed_bytes<1024>{});
    expect_exact(p, p.source, tp::fixed_bytes<2'097'152>{});
    ASSERT_FALSE(testing::Test::HasFailure()) << "cut " << c.most;
  }
}

TEST(Transfer, Every_chunk_size_from_one_byte_to_more_than_the_image) {
  const model source = mixed_model().fill(2);
  pair p(cut{100});
  p.left.publish(source);
  for (const std::uint64_t n :
       {1u, 2u, 3u, 7u, 8u, 9u, 63u, 64u, 65u, 511u, 512u, 513u, 1000u, 6149u, 6150u, 6151u, 100'000u}) {
    expect_exact(p, source, tp::bytes_up_to<100'000>{n});
    ASSERT_FALSE(testing::Test::HasFailure()) << "chunk " << n;
  }
  const auto all = source.schema().image_bytes;
  for (const std::uint64_t n : {all - 1, all, all + 1}) expect_exact(p, source, tp::bytes_up_to<100'000>{n});
  EXPECT_FALSE(p.left_error || p.right_error);
}

TEST(Transfer, Every_strategy_window_and_integrity_policy) {
  const model source = mixed_model().fill(3);
  for (const std::size_t c : {std::size_t{13}, std::size_t{700}, ~std::size_t{0}}) {
    pair p(cut{c});
    p.left.publish(source);
    for (std::uint32_t window = 1; window <= 9; ++window) {
      const tp::pull_request request{.ref = {1, 2}, .window = window};
      expect_exact<tp::unverified>(p, source, tp::fixed_bytes<256>{}, request);
      expect_exact<tp::image_digest>(p, source, tp::fixed_bytes<256>{}, request);
      expect_exact<tp::chunk_digest>(p, source, tp::fixed_bytes<256>{}, request);
      expect_exact<tp::chunk_and_image_digest>(p, source, tp::fixed_bytes<256>{}, request);
      expect_exact<tp::chunk_and_image_digest>(p, source, tp::per_tensor<1000>{}, request);
      expect_exact<tp::image_digest>(p, source, tp::per_tensor<100'000>{}, request);
      expect_exact<tp::image_digest>(p, source, tp::whole{}, request);
    }
    ASSERT_FALSE(testing::Test::HasFailure()) << "cut " << c;
  }
}

TEST(Transfer, L8_unaligned_destinations_and_sources) {
  for (std::size_t shift = 1; shift < 8; ++shift) {
    const model source = mixed_model(8 - shift).fill(shift);
    pair p(cut{333});
    p.left.publish(source);
    expect_exact(p, source, tp::fixed_bytes<104>{}, {{1, 2}}, shift);
  }
}

TEST(Transfer, L7_models_of_empty_tensors_alone_and_of_none) {
  for (int n = 0; n < 3; ++n) {
    model source, mine;
    for (int i = 0; i < n; ++i)
      source.add("e" + std::to_string(i), dtype::f32, {0, 4}), mine.add("e" + std::to_string(i), dtype::f32, {0, 4});
    source.ready(), mine.ready();
    pair p(cut{5});
    p.left.publish(source);
    const auto done = pull_into(p, mine);
    ASSERT_TRUE(succeeded(done));
    EXPECT_EQ(p.left.status().completed, 1u);
  }
}

TEST(Transfer, Recipients_of_one_reference_cut_it_in_different_ways_at_once) {
  const model source = mixed_model().fill(5);
  pair a(cut{77}), b(cut{500});
  // b's left end serves a's references: two connections of one owner
  tp::buffer_pool<>& pool = a.left.pool;
  inbox box;
  endpoint second(a.left.references, pool, box);
  a.left.publish(source, {1, 2}, 2);
  wire there, back;
  pipe_end server(there, back, {}, {}), client(back, there, {}, {});
  model one = mixed_model(), two = mixed_model();
  tp::land to_one(one.destination()), to_two(two.destination());
  transfer<tp::fixed_bytes<8>> t1(to_one, {{1, 2}}, {}, 1);
  transfer<tp::per_tensor<999>> t2(to_two, {{1, 2}}, {}, 1);
  tp::no_transfer idle;
  a.right.end.begin_pull(), b.right.end.begin_pull();
  const auto scratch = [](party& q) { return byte_span(reinterpret_cast<std::byte*>(q.scratch.get()), 65536); };
  for (int i = 0; i < 100'000 && !(t1.ended() && t2.ended()); ++i) {
    if (!t1.ended()) {
      ASSERT_TRUE(a.pump(idle, t1));
    }
    ASSERT_TRUE(tp::pump_once(second, idle, server, scratch(a.left)));
    ASSERT_TRUE(tp::pump_once(b.right.end, t2, client, scratch(b.right)));
  }
  ASSERT_TRUE(t1.outcome() && t2.outcome());
  EXPECT_TRUE(one.same_tensors(source) && two.same_tensors(source));
  EXPECT_TRUE(a.left.references.settled({1, 2}));
  EXPECT_NE(t1.outcome()->chunks, t2.outcome()->chunks);
}

TEST(Transfer, An_image_above_the_owners_cap_does_not_fit_a_native_transfer) {
  owning_pair p;
  p.owner_lies = lie_about(tp::frame_kind::description, [](tp::frame& m) { m.length = 1000; });
  receiving<tp::whole> x;
  EXPECT_EQ(code_of(p.pull(x.t)), errc::does_not_fit);
  EXPECT_TRUE(x.mine.untouched());
}

TEST(Transfer, Unverifiable_publications_end_unverified_where_the_pull_accepts_that) {
  const model source = mixed_model().fill(1);
  pair p;
  p.left.publish(source, {1, 2}, 0, false);
  model mine = mixed_model();
  tp::land to(mine.destination());
  transfer<> refusing(to, {{1, 2}}, {}, 1);
  EXPECT_EQ(code_of(p.pull(refusing)), errc::not_verifiable);
  EXPECT_TRUE(mine.untouched());
  transfer<> t(to, {.ref = {1, 2}, .unverified = true}, {}, p.right.end.next_id());
  const auto done = p.pull(t);
  ASSERT_TRUE(done);
  EXPECT_EQ(done->outcome, tp::outcome::completed_unverified);
  EXPECT_TRUE(done->confirmed);
  EXPECT_EQ(p.left.status().completed, 0u);
  EXPECT_TRUE(mine.same_tensors(source));
}

// Everything has come, and the owner does not hear of it, or not in this life.

/// A pull until its confirmation leaves for the first time; that frame is lost with its connection.
template <class Transfer>
void pull_up_to_the_confirmation(pair& p, Transfer& t) {
  tp::no_transfer idle;
  bool last = false;
  p.owner_lies = [&](byte_vector& f) {
    if (kind_of(f) == tp::frame_kind::confirmed) last = true, f.clear();
  };
  p.right.end.begin_pull();
  p.run(idle, t, [&] { return last; });
  p.owner_lies = {};
  EXPECT_TRUE(last);
  EXPECT_FALSE(t.ended());
}
struct wanted_part {
  model mine;
  std::vector<std::string_view> names;
  wanted_part(bool part, const model& source) : mine(part ? model() : mixed_model()) {
    if (!part) return;
    for (std::size_t i = 0; i < source.schema().tensor_count; ++i) {
      const auto& t = source.schema().tensors[i];
      if (t.name != "layers.0.weight" && t.name != "step") continue;
      mine.add(std::string(t.name), t.type, {t.extents().begin(), t.extents().end()});
      names.push_back(t.name);
    }
    mine.ready();
  }
};
TEST(Transfer, An_owner_that_restarts_before_it_is_heard_costs_the_last_byte_once_more) {
  for (const bool named : {false, true})
    for (const bool part : {false, true}) {
      SCOPED_TRACE(named);
      owning_pair p({}, 1);
      wanted_part want(part, p.source);
      tp::land to(want.mine.destination());
      transfer<> t(to, {.ref = {1, 2}, .subset = want.names, .recipient = {named ? 7u : 0u}}, {}, 1);
      pull_up_to_the_confirmation(p, t);
      const auto landed = t.landed_bytes();
      const auto done = pull_after_restart(p, t, p.source);
      ASSERT_TRUE(completed(done));
      EXPECT_EQ(t.landed_bytes(), landed);
      EXPECT_TRUE(part || want.mine.same_tensors(p.source));
      EXPECT_EQ(done->confirmed, named);
      if (!named) {  // an owner that has not restarted would count it twice, and it cannot tell
        EXPECT_EQ(done->unconfirmed_because, errc::bad_request);
        continue;
      }
      EXPECT_EQ(p.left.status().bytes_sent, 1u);
      EXPECT_EQ(p.left.status().completed, 1u);
      EXPECT_TRUE(p.left.references.settled({1, 2}));
    }
}
TEST(Transfer, A_confirmation_that_is_lost_for_good_leaves_what_was_checked) {
  for (const errc why : {errc::timed_out, errc::connection_lost, errc::cancelled}) {
    owning_pair p;
    receiving<> x;
    pull_up_to_the_confirmation(p, x.t);
    x.t.fail({why, 0, 0, {}});
    const auto done = x.t.outcome();
    ASSERT_TRUE(completed(done));
    EXPECT_FALSE(done->confirmed);
    EXPECT_EQ(done->unconfirmed_because, why);
    EXPECT_FALSE(x.t.farewell());
    EXPECT_TRUE(x.mine.same_tensors(p.source));
  }
}
TEST(Transfer, A_restarted_owner_with_something_else_leaves_what_was_checked) {
  const model source = mixed_model().fill(1), other = mixed_model().fill(2);
  for (const bool nothing : {false, true}) {
    pair p;
    p.left.publish(source);
    receiving<> x({.ref = {1, 2}, .recipient = {7}});
    pull_up_to_the_confirmation(p, x.t);
    p.left.restart();
    p.reconnect();
    if (!nothing) p.left.publish(other);
    x.t.restart();
    const auto done = p.pull(x.t);
    ASSERT_TRUE(completed(done));
    EXPECT_EQ(done->version, version_of(source));
    EXPECT_EQ(done->unconfirmed_because, nothing ? errc::unknown_reference : errc::stale_version);
    EXPECT_FALSE(done->confirmed);
    EXPECT_TRUE(x.mine.same_tensors(source));
  }
}
TEST(Transfer, An_owner_that_knows_no_serve_is_asked_a_few_times_and_not_for_ever) {
  owning_pair p;
  p.owner_lies = [](byte_vector& f) {
    if (kind_of(f) != tp::frame_kind::confirmed) return;
    tp::frame m;
    m.kind = tp::frame_kind::refused;
    m.id = static_cast<std::uint32_t>(tp::load_le64(f.data() + 16));
    m.ref = {1, 2};
    m.status = tp::status::bad_request;
    const frame r = encode(m);
    f.assign(r.bytes().begin(), r.bytes().end());
  };
  receiving<> x({.ref = {1, 2}, .recipient = {7}});
  const auto done = p.pull(x.t);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(done->unconfirmed_because, errc::bad_request);
  EXPECT_EQ(p.left.status().bytes_sent, p.source.schema().image_bytes + 8);
}
TEST(Transfer, An_owner_that_says_we_had_ended_has_recorded_the_confirmation) {
  owning_pair p({}, 1);
  receiving<> x({.ref = {1, 2}, .recipient = {7}});
  p.owner_lies = [&](byte_vector& f) {
    const bool late = kind_of(f) == tp::frame_kind::description && x.t.total_bytes() > 0;
    if (kind_of(f) != tp::frame_kind::confirmed && !late) return;
    tp::frame m;
    m.kind = tp::frame_kind::refused;
    m.id = static_cast<std::uint32_t>(tp::load_le64(f.data() + 16));
    m.ref = {1, 2};
    m.status = late ? tp::status::already_final : tp::status::bad_request;
    const frame r = encode(m);
    f.assign(r.bytes().begin(), r.bytes().end());
  };
  const auto done = p.pull(x.t);
  ASSERT_TRUE(confirmed(done));
}

TEST(Transfer, C1_a_source_that_changes_without_being_published_again_is_a_digest_mismatch) {
  model source = mixed_model().fill(1);
  pair p;
  p.left.publish(source);
  source.fill(2);
  receiving<> x;
  const auto done = p.pull(x.t);
  EXPECT_EQ(code_of(done), errc::digest_mismatch);
  EXPECT_EQ(done.error().at, source.schema().image_bytes);
  EXPECT_EQ(p.left.status().completed, 0u);
  EXPECT_EQ(p.left.status().failed, 1u) << "the owner hears of it";
}

TEST(Transfer, Refusals_reach_the_caller_by_name) {
  const model source = mixed_model().fill(1);
  pair p(cut{50});
  model mine = mixed_model();
  const auto refused = [&](tp::pull_request request) {
    const auto done = pull_into(p, mine, request);
    EXPECT_FALSE(done);
    return done ? errc{} : done.error().code;
  };
  EXPECT_EQ(refused({{1, 2}}), errc::unknown_reference);
  p.left.publish(source);
  EXPECT_EQ(refused({.ref = {1, 2}, .version = 5}), errc::stale_version);
  ASSERT_TRUE(p.left.references.withdraw({1, 2}));
  EXPECT_EQ(refused({{1, 2}}), errc::withdrawn);
  EXPECT_TRUE(mine.untouched());
  p.left.publish(source);
  expect_exact(p, source, tp::fixed_bytes<256>{});  // the connection is as good as before
}

TEST(Transfer, A_model_of_another_schema_is_refused_and_the_owner_waits_for_the_right_one) {
  const model source = mixed_model().fill(1);
  pair p(cut{50});
  p.left.publish(source);
  model other;
  other.add("w", tp::dtype::f32, {3}).ready();
  EXPECT_EQ(code_of(pull_into(p, other, {{1, 2}})), errc::schema_mismatch);
  EXPECT_EQ(p.left.status().final(), 0u);
  EXPECT_EQ(p.left.status().acquired, 0u);
  expect_exact(p, source, tp::fixed_bytes<256>{});
}

TEST(Transfer, Bytes_sent_count_the_payload) {
  owning_pair p(cut{61});
  expect_exact(p, p.source, tp::bytes_up_to<4096>{101});
  EXPECT_EQ(p.left.status().bytes_sent, p.source.schema().image_bytes);
}

// The parts of section 6 of the design: at most 2 KiB for each connection, 4 KiB for a recipient beyond its
// destination.
// On a big-endian machine numbers pass through a landing, which has 4 KiB for them.
constexpr std::size_t land_bytes = sizeof(tp::land) - (tp::little_endian_machine ? 0 : 4096 - 184);
static_assert(sizeof(endpoint) <= 2048 - 64, "an endpoint has to leave room for a driver's few words");
static_assert(sizeof(transfer<>) + land_bytes <= 4096 - 1024);
static_assert(sizeof(transfer<tp::per_tensor<4096>, tp::chunk_and_image_digest>) + land_bytes <= 4096);
TEST(Transfer, A_recipient_and_its_connection_take_at_most_4_KiB) {
  using connection = tp::endpoint<tested_framing, tp::default_limits, tp::no_owner, inbox>;
  EXPECT_LE(sizeof(connection) + sizeof(transfer<>) + land_bytes, 4096u);
  EXPECT_LE(sizeof(connection) + sizeof(transfer<tp::fixed_bytes<1024>, tp::unverified>) + land_bytes, 4096u);
}

}  // namespace transfer_test
