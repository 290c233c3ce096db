// The owner of a small machine, pulled by unmodified hosts, asked by hand, by strangers and by nobody's rules.
#include "support/embedded_owner.hpp"

namespace owner_test {

using namespace test;
using kind = tp::frame_kind;
using state = tp::recipient_state;
using tp::status;

constexpr tp::ref_id id{1, 2};
constexpr tp::recipient_id alice{9}, bob{10};

/// One owner that is asked by hand.
template <class Owner = small_owner<>>
struct By_hand : testing::Test {
  device_model source = random_model(1);
  const model twin = twin_of(source);
  const byte_vector image = twin.image_bytes();
  const std::uint64_t version = version_of(twin), size = image.size();
  Owner o;
  std::uint32_t now = 1000, last_id = 50;

  void publish(std::uint64_t random = 7) { o.publish(source, id, random); }
  tp::frame ask(kind k, tp::recipient_id who = alice, tp::ref_id ref = id) {
    tp::frame q;
    q.kind = k, q.ref = ref, q.recipient = who, q.id = ++last_id;
    return q;
  }
  tp::frame pull_of(std::uint64_t offset, std::uint32_t length, std::uint64_t v = 0) {
    tp::frame q = ask(kind::pull);
    q.offset = offset, q.length = length, q.version = v;
    return q;
  }
  tp::frame confirmation(std::uint64_t nonce, std::uint64_t digest, bool verified = true,
                         tp::recipient_id who = alice) {
    tp::frame q = ask(kind::confirm, who);
    q.version = version, q.nonce = nonce, q.digest = digest, q.flag = verified;
    return q;
  }
  answers say(const_byte_span bytes) { return answers_of(o, bytes, now, image); }
  /// The one answer to a request.
  tp::frame reply(const tp::frame& q) {
    const answers all = say(encode(q).bytes());
    EXPECT_EQ(all.size(), 1u) << static_cast<int>(q.kind);
    if (all.empty()) return {};
    EXPECT_EQ(all[0].id, q.id);
    EXPECT_EQ(all[0].ref, q.ref);
    return all[0];
  }
  status refusal(const tp::frame& q) {
    const tp::frame r = reply(q);
    EXPECT_EQ(r.kind, kind::refused) << static_cast<int>(r.kind);
    return r.status;
  }
  bool silent(const tp::frame& q) { return say(encode(q).bytes()).empty(); }
  std::uint64_t describe(tp::recipient_id who = alice) {
    const tp::frame d = reply(ask(kind::describe, who));
    EXPECT_EQ(d.kind, kind::description);
    return d.nonce;
  }
  /// Takes everything, and gives the nonce.
  std::uint64_t pull_all(tp::recipient_id who = alice) {
    const std::uint64_t nonce = describe(who);
    for (std::uint64_t at = 0; at < size;) {
      const tp::frame c = reply(pull_of(at, 0xffffffff, version));
      EXPECT_EQ(c.kind, kind::chunk);
      EXPECT_EQ(c.nonce, nonce);
      if (c.kind != kind::chunk) break;
      at += c.length;
    }
    return nonce;
  }
};
using EmbeddedOwner = By_hand<>;

TEST_F(EmbeddedOwner, Describes_what_a_host_would_describe) {
  publish();
  const tp::frame d = reply(ask(kind::describe));
  EXPECT_EQ(d.kind, kind::description);
  EXPECT_EQ(d.version, version);
  EXPECT_EQ(d.fingerprint, twin.schema().fingerprint);
  EXPECT_EQ(d.image_bytes, size);
  EXPECT_EQ(d.data_start, twin.schema().header_bytes);
  EXPECT_EQ(d.tensors, twin.size());
  EXPECT_EQ(d.length, 512u);
  EXPECT_EQ(d.window, 1u);
  EXPECT_TRUE(d.flag);
  EXPECT_FALSE(d.memory);
  EXPECT_NE(d.nonce, 0u);
  EXPECT_EQ(o.reference(), (tp::reference{id, version, twin.schema().fingerprint}));
  auto with_memory = ask(kind::describe);
  with_memory.memory = true;
  EXPECT_FALSE(reply(with_memory).memory) << "it passes no memory on";
}

TEST_F(EmbeddedOwner, Unknown_stale_and_out_of_range_have_their_statuses) {
  EXPECT_EQ(refusal(ask(kind::describe)), status::unknown_reference);
  EXPECT_EQ(refusal(ask(kind::describe, alice, {})), status::unknown_reference)
      << "nothing is published, not the reference 0";
  publish();
  EXPECT_EQ(refusal(pull_of(0, 8, version + 1)), status::stale);
  EXPECT_EQ(refusal(pull_of(size + 1, 8)), status::out_of_range);
  EXPECT_EQ(refusal(pull_of(0, 0)), status::bad_request);
  auto wrong_schema = pull_of(0, 8);
  wrong_schema.fingerprint = twin.schema().fingerprint + 1;
  EXPECT_EQ(refusal(wrong_schema), status::schema_mismatch);
  wrong_schema.fingerprint = twin.schema().fingerprint;
  EXPECT_EQ(reply(wrong_schema).kind, kind::chunk);
  auto with_digest = pull_of(0, 8);
  for (const int k : {1, 2, 3, 128, 255}) {
    with_digest.chunk_digest = static_cast<tp::digest_kind>(k);
    with_digest.id = ++last_id;
    EXPECT_EQ(refusal(with_digest), status::unsupported) << k;
  }
}

TEST_F(EmbeddedOwner, R1_a_pull_at_the_end_is_answered_end_whatever_its_length) {
  publish();
  const auto nonce = describe();
  for (const std::uint32_t n : {0u, 1u, 0xffffffffu}) {
    const tp::frame e = reply(pull_of(size, n));
    EXPECT_EQ(e.kind, kind::end);
    EXPECT_EQ(e.image_bytes, size);
    EXPECT_EQ(e.version, version);
    EXPECT_EQ(e.nonce, nonce);
  }
  EXPECT_EQ(o.state(), state::acquired) << "nothing was sent";
}

TEST_F(EmbeddedOwner, R2_offsets_that_would_wrap_are_out_of_range) {
  publish();
  for (const std::uint64_t at : {size + 1, ~std::uint64_t{0}, ~std::uint64_t{0} - 7, std::uint64_t{1} << 63,
                                 std::uint64_t{1} << 32, (std::uint64_t{1} << 32) + 8})
    for (const std::uint32_t n : {0u, 8u, 0xffffffffu}) EXPECT_EQ(refusal(pull_of(at, n)), status::out_of_range);
  EXPECT_EQ(o.bytes_served(), 0u);
}

TEST_F(EmbeddedOwner, R4_any_offset_is_served_exactly_and_no_more_than_the_cap) {
  publish();
  EXPECT_EQ(reply(pull_of(size - 5, 0xffffffff)).length, 5u);
  EXPECT_EQ(reply(pull_of(0, 0xffffffff)).length, 512u);
  std::uint64_t served = 517;
  generator g(1);
  for (int i = 0; i < 3000; ++i) {  // answers_of() compares the bytes
    const auto q = pull_of(g.below(size), static_cast<std::uint32_t>(1 + g.below(700)));
    const tp::frame c = reply(q);
    ASSERT_EQ(c.kind, kind::chunk);
    ASSERT_EQ(c.offset, q.offset);
    ASSERT_EQ(c.length, std::min<std::uint64_t>({q.length, size - q.offset, 512}));
    ASSERT_EQ(c.digest, 0u) << "no digest that nobody asked for";
    served += c.length;
  }
  EXPECT_EQ(o.bytes_served(), served);
}

TEST_F(EmbeddedOwner, R6_reference_zero_and_near_misses_are_unknown_and_look_the_same) {
  publish();
  for (const tp::ref_id guess :
       {tp::ref_id{}, tp::ref_id{1, 3}, tp::ref_id{2, 1}, tp::ref_id{0, 2}, tp::ref_id{~0ull, ~0ull}})
    for (const kind k : {kind::describe, kind::pull, kind::schema, kind::confirm}) {
      auto q = ask(k, alice, guess);
      if (k != kind::describe) q.version = 7;
      const tp::frame r = reply(q);
      EXPECT_EQ(r.kind, kind::refused);
      EXPECT_EQ(r.status, status::unknown_reference);
      EXPECT_EQ(r.version, k == kind::describe ? 0u : 7u) << "only what the request said";
      EXPECT_EQ(r.nonce, 0u);
    }
  EXPECT_EQ(o.state(), state::unseen);
}

TEST_F(EmbeddedOwner, R8_after_completion_nothing_of_the_model_is_read_and_everybody_hears_it) {
  publish();
  const auto nonce = pull_all();
  ASSERT_EQ(reply(confirmation(nonce, version)).kind, kind::confirmed);
  source = random_model(2);  // the next round's; whatever leaves now would be found by answers_of()
  EXPECT_EQ(refusal(ask(kind::describe)), status::already_final);
  EXPECT_EQ(refusal(ask(kind::describe, bob)), status::ended);
  EXPECT_EQ(refusal(ask(kind::describe, {})), status::ended);
  EXPECT_EQ(refusal(pull_of(0, 8)), status::ended);
  auto cancel = ask(kind::cancel);
  cancel.nonce = nonce;
  EXPECT_TRUE(silent(cancel));
  o.withdraw(3);
  EXPECT_EQ(refusal(ask(kind::describe)), status::already_final);
  EXPECT_EQ(reply(ask(kind::describe, bob)).delay_ms, 3u);
  o.busy(250);
  EXPECT_EQ(refusal(ask(kind::describe)), status::busy)
      << "the next one is in the making, perhaps under the same reference";
  EXPECT_EQ(reply(confirmation(nonce, version)).status, status::ok) << "whose answer was lost";
  EXPECT_EQ(o.state(), state::completed);
}

TEST_F(EmbeddedOwner, R9_a_late_double_does_not_bring_back_who_has_cancelled) {
  publish();
  const auto described = ask(kind::describe);
  const auto nonce = reply(described).nonce;
  const auto pulled = pull_of(0, 8);
  ASSERT_EQ(reply(pulled).kind, kind::chunk);
  auto cancel = ask(kind::cancel);
  cancel.nonce = nonce;
  EXPECT_TRUE(silent(cancel));
  EXPECT_TRUE(silent(pulled));
  EXPECT_TRUE(silent(described));
  EXPECT_EQ(o.state(), state::cancelled);
  last_id = 10;  // a peer that was started again, and chose its ids badly, is believed
  const auto again = ask(kind::describe);
  int asked = 0;
  while (silent(again)) ASSERT_LT(++asked, 10);
  EXPECT_EQ(o.state(), state::acquired);
  EXPECT_EQ(reply(pull_of(0, 8)).kind, kind::chunk);
}

TEST_F(EmbeddedOwner, One_recipient_at_a_time_and_one_that_is_silent_gives_way) {
  publish();
  const auto first = describe();
  now += 4000;
  ASSERT_EQ(reply(pull_of(0, 8)).kind, kind::chunk);
  now += 9999;
  const tp::frame r = reply(ask(kind::describe, bob));
  EXPECT_EQ(r.status, status::busy);
  EXPECT_EQ(r.delay_ms, 1u);
  EXPECT_EQ(refusal(ask(kind::describe, {})), status::busy);
  EXPECT_EQ(describe(), first) << "the first is not held up";
  now += 10'000;
  const auto second = describe(bob);
  EXPECT_NE(second, first);
  EXPECT_EQ(o.recipient(), bob);
  EXPECT_EQ(refusal(ask(kind::describe)), status::busy);
  EXPECT_EQ(refusal(confirmation(first, version)), status::bad_request);
  ASSERT_EQ(pull_all(bob), second);
  EXPECT_EQ(reply(confirmation(second, version, true, bob)).status, status::ok);
}
TEST_F(EmbeddedOwner, A_clock_that_wraps_is_no_silence) {
  publish();
  now = 0xfffffff0u;
  describe();
  now = 100;
  EXPECT_EQ(refusal(ask(kind::describe, bob)), status::busy);
  now = 20'000;
  describe(bob);
}
TEST_F(EmbeddedOwner, A_recipient_without_a_number_is_the_one_at_the_other_end) {
  publish();
  ASSERT_EQ(reply(pull_of(0, 8)).kind, kind::chunk)
      << "of an earlier description, before this machine was started again";
  EXPECT_EQ(o.state(), state::acquired);
  const auto nonce = describe({});
  ASSERT_EQ(pull_all({}), nonce);
  EXPECT_EQ(refusal(confirmation(nonce, version, true, alice)), status::bad_request);
  const auto named = describe(alice);
  EXPECT_NE(named, nonce) << "it gives way at once";
  ASSERT_EQ(pull_all(alice), named);
  EXPECT_EQ(reply(confirmation(named, version, true, {})).status, status::ok);
  EXPECT_EQ(o.state(), state::completed);
}

TEST_F(EmbeddedOwner, Busy_is_the_answer_to_everything_while_the_model_is_in_the_making) {
  o.busy(250);
  const auto all_busy = [&] {
    for (const kind k : {kind::describe, kind::pull, kind::schema, kind::confirm, kind::locate})
      for (const tp::ref_id ref : {id, tp::ref_id{5, 5}}) {
        const tp::frame r = reply(ask(k, alice, ref));
        EXPECT_EQ(r.kind, kind::refused);
        EXPECT_EQ(r.status, status::busy);
        EXPECT_EQ(r.delay_ms, 250u);
      }
    EXPECT_TRUE(silent(ask(kind::cancel)));
  };
  all_busy();
  publish();
  const auto nonce = pull_all();
  o.busy(250);
  source = random_model(2);
  all_busy();
  EXPECT_EQ(refusal(confirmation(nonce, version)), status::busy);
  EXPECT_EQ(o.state(), state::unfinished);
}

TEST_F(EmbeddedOwner, A_model_that_is_withdrawn_or_published_anew_is_answered_as_such) {
  publish();
  const auto nonce = pull_all();
  o.withdraw(42);
  source = random_model(2);
  EXPECT_EQ(o.state(), state::unfinished);
  for (const auto& q : {ask(kind::describe), pull_of(0, 8), ask(kind::schema), confirmation(nonce, version)}) {
    const tp::frame r = reply(q);
    EXPECT_EQ(r.status, status::withdrawn);
    EXPECT_EQ(r.delay_ms, 42u);
  }
  EXPECT_EQ(reply(ask(kind::describe, alice, {5, 5})).delay_ms, 0u) << "a stranger learns nothing";
  EXPECT_EQ(refusal(ask(kind::describe, alice, {5, 5})), status::unknown_reference);
  const device_model next = random_model(3);
  o.publish(next, id, 8);
  EXPECT_EQ(o.state(), state::unseen);
  const tp::frame r = reply(pull_of(0, 8, version));
  EXPECT_EQ(r.status, status::stale);
  EXPECT_EQ(r.version, version_of(twin_of(next)));
  EXPECT_EQ(refusal(confirmation(nonce, version)), status::bad_request);
}

TEST_F(EmbeddedOwner, Pages_of_the_schema_and_names_are_refused_by_name) {
  publish();
  EXPECT_EQ(refusal(ask(kind::schema)), status::unsupported);
  const std::string_view names[] = {"fc1.weight", "fc1.bias"};
  auto locate = ask(kind::locate);
  locate.names = names;
  const tp::frame r = reply(locate);
  EXPECT_EQ(r.status, status::unsupported);
  EXPECT_EQ(r.version, version);
  const tp::index_range slices[] = {{2, 4}, {}};
  locate.id = ++last_id, locate.slices = slices;
  EXPECT_EQ(refusal(locate), status::unsupported);
  locate.id = ++last_id, locate.version = version + 1;
  EXPECT_EQ(refusal(locate), status::stale);
  locate.id = ++last_id, locate.ref = {1, 3};
  EXPECT_EQ(refusal(locate), status::unknown_reference);
  EXPECT_EQ(o.state(), state::unseen);
}

TEST_F(EmbeddedOwner, Of_many_requests_in_one_datagram_as_many_are_answered_as_fit_one) {
  publish();
  byte_vector together;
  const auto add = [&](const tp::frame& q) {
    const frame f = encode(q);
    together.insert(together.end(), f.bytes().begin(), f.bytes().end());
  };
  add(ask(kind::describe));
  for (std::uint32_t i = 0; i < 10; ++i) add(pull_of(64 * i, 64));
  const answers some = say(together);  // a description and the chunks behind it, of 592 bytes together
  ASSERT_EQ(some.size(), 4u);
  EXPECT_EQ(some[0].kind, kind::description);
  for (std::size_t i = 1; i < some.size(); ++i) EXPECT_EQ(some[i].offset, 64 * (i - 1));
  together.clear();
  tp::frame message;
  message.kind = kind::application;
  add(message);
  add(pull_of(0, 512));
  add(pull_of(512, 512));
  const answers one = say(together);
  ASSERT_EQ(one.size(), 1u) << "what is no request is passed over";
  EXPECT_EQ(one[0].length, 512u);
  EXPECT_EQ(o.bytes_served(), 3 * 64u + 512u);
  const tp::frame last = pull_of(size - 400, 512);
  together.clear();
  add(pull_of(0, 512));
  add(last);
  EXPECT_EQ(say(together).size(), 1u);
  EXPECT_EQ(o.state(), state::acquired) << "the end was asked for and not sent";
}

}  // namespace owner_test
