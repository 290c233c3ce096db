// An owner publishes the same content under the same ID again while recipients pull it: each recipient is served under
// another nonce from then on. And peers that answer with another nonce for ever.
#include "support/lossy_pair.hpp"

namespace republish_test {

using namespace test;
using kind = tp::frame_kind;

constexpr tp::ref_id id{1, 2};
using short_chunks = tp::fixed_bytes<512>;
using datagram_pull = tp::datagram_transfer<tp::land, tp::fixed_bytes<1112>, tp::image_digest>;

tp::pull_request of(std::uint64_t who, std::uint32_t window = 4) {
  tp::pull_request r{.ref = id, .window = window};
  r.recipient = {who};
  return r;
}
model large() {
  model m;
  m.add("w", dtype::f32, {30'000}).ready();
  return m;
}
/// False: it is being sent at this moment.
template <class Party>
bool publish_again(Party& p, const model& m) {
  const auto done = p.references.publish(m.source(), version_of(m), true, id, 0);
  if (!done) {
    EXPECT_EQ(code_of(done), errc::busy);
  }
  tp::settlement s;
  for (tp::callback<const tp::settlement&> nobody; p.references.next_settled(s, nobody);)
    if (p.references.returned(s.id)) p.references.released(s.id);
  return done.has_value();
}

/// One round. A chunk that was half sent when its image was replaced goes on with the new one.
template <class Transfer>
void pump(pair& p, Transfer& t) {
  tp::no_transfer idle;
  ASSERT_TRUE(p.pump(idle, t));
  if (t.pause().count() > 0) t.restart();  // what waited to be sent when its image was replaced is answered `busy`
}
/// Publishes again whenever `gap` more bytes have landed. How often that was.
template <class Transfer>
int pull_while_it_is_published_again(pair& p, Transfer& t, const model& source, std::uint64_t gap) {
  p.right.end.begin_pull();
  std::uint64_t last = 0;
  int times = 0;
  for (int i = 0; i < 1'000'000 && !t.ended() && !testing::Test::HasFatalFailure(); ++i) {
    if (t.landed_bytes() >= last + gap && publish_again(p.left, source)) last = t.landed_bytes(), ++times;
    pump(p, t);
  }
  return times;
}

template <class Integrity>
void expect_to_go_on_over_streams(std::size_t every, std::uint32_t window, std::uint64_t gap) {
  owning_pair p(cut{every});
  receiving<short_chunks, Integrity> x(of(7, window));
  const int times = pull_while_it_is_published_again(p, x.t, p.source, gap);
  ASSERT_TRUE(x.t.ended());
  ASSERT_TRUE(succeeded(x.t.outcome())) << " at " << x.t.outcome().error().at;
  EXPECT_GT(times, 1);
  EXPECT_TRUE(x.t.outcome()->confirmed);
  EXPECT_TRUE(x.mine.same_tensors(p.source) && x.mine.guards_intact());
  EXPECT_EQ(p.left.status().completed + p.left.status().completed_unverified, 1u);
}
TEST(Republish, A_pull_over_a_stream_goes_on) {
  for (const std::size_t every : {std::size_t{97}, ~std::size_t{0}})
    for (const std::uint32_t window : {1u, 4u})
      for (const std::uint64_t gap : {512u, 700u, 2000u}) {
        expect_to_go_on_over_streams<tp::image_digest>(every, window, gap);
        expect_to_go_on_over_streams<tp::chunk_and_image_digest>(every, window, gap);
        expect_to_go_on_over_streams<tp::unverified>(every, window, gap);
        ASSERT_FALSE(testing::Test::HasFailure()) << every << " " << window << " " << gap;
      }
}
TEST(Republish, A_pull_of_some_tensors_over_a_stream_goes_on) {
  owning_pair p(cut{97});
  model mine;
  mine.add("layers.0.weight", dtype::f32, {30, 40}).add("scale", dtype::f16, {7, 3}).ready();
  const std::string_view names[] = {"layers.0.weight", "scale"};
  tp::land to(mine.destination());
  auto request = of(7);
  request.subset = names;
  transfer<short_chunks> t(to, request, {}, 1);
  EXPECT_GT(pull_while_it_is_published_again(p, t, p.source, 1000), 1);
  ASSERT_TRUE(t.ended());
  ASSERT_TRUE(succeeded(t.outcome()));
  for (const auto name : names) EXPECT_EQ(mine.bytes_of(name), p.source.bytes_of(name));
}
/// Publishes another version under the ID; what it replaces stays for those who have begun with it.
void publish_beside_those_under_way(party& p, const model& m) {
  const auto in = p.references.open_transaction({});
  ASSERT_TRUE(in);
  EXPECT_TRUE(p.references.publish(m.source(), version_of(m), true, id, *in, tp::detail::tells_nobody{}, false, true));
  p.references.seal(*in);
}
/// The answer to a description that is asked for over a connection of its own.
tp::pending_reply described(party& p, std::uint64_t version, std::uint64_t who) {
  owner::peer from;
  tp::frame m;
  m.kind = kind::describe;
  m.ref = id;
  m.version = version;
  m.recipient = {who};
  tp::pending_reply out;
  EXPECT_TRUE(p.references.handle(from, m, out));
  return out;
}
/// A slow recipient has begun with the first version when others are published.
struct Republished : testing::Test {
  explicit Republished(std::uint32_t recipients = 0) : p(cut{97}, recipients) {}
  void SetUp() override {
    p.right.end.begin_pull();
    while (slow.t.landed_bytes() < 1000 && !HasFailure()) pump(p, slow.t);
  }
  void run_to_the_end() {
    for (int i = 0; i < 1'000'000 && !slow.t.ended() && !HasFailure(); ++i) pump(p, slow.t);
    ASSERT_TRUE(slow.t.ended());
    ASSERT_TRUE(confirmed(slow.t.outcome()));
    EXPECT_TRUE(slow.mine.same_tensors(p.source));
  }
  owning_pair p;
  const model second = mixed_model().fill(2), third = mixed_model().fill(3);
  const std::uint64_t first = version_of(p.source);
  receiving<short_chunks> slow{of(7, 1)};
};
struct RepublishedAndWithdrawn : Republished, testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(OneOrAll, RepublishedAndWithdrawn, testing::Bool());
struct RepublishedForOne : Republished {
  RepublishedForOne() : Republished(1) {}
};
TEST_F(Republished, What_is_replaced_stays_for_those_who_have_begun_with_it) {
  publish_beside_those_under_way(p.left, second);
  // nobody else begins with it, and the one that has may come back over another connection
  EXPECT_EQ(described(p.left, 0, 8).version, version_of(second));
  EXPECT_EQ(described(p.left, first, 9).status, tp::status::stale);
  const auto again = described(p.left, first, 7);
  EXPECT_EQ(again.kind, kind::description);
  EXPECT_EQ(again.version, first);
  publish_beside_those_under_way(p.left, third);  // one stays at a time: the second makes way, though one has begun
  EXPECT_EQ(described(p.left, version_of(second), 8).status, tp::status::stale);
  p.left.references.advance(std::chrono::milliseconds(1));
  EXPECT_FALSE(p.left.references.settled(tp::reference{id, first, 0}));
  run_to_the_end();
  p.left.references.advance(std::chrono::milliseconds(2));
  EXPECT_TRUE(p.left.references.settled(tp::reference{id, first, 0}));
  EXPECT_EQ(p.left.references.totals().references, 1u);
  receiving<short_chunks> next(of(10));
  ASSERT_TRUE(succeeded(p.pull(next.t)));
  EXPECT_TRUE(next.mine.same_tensors(third));
}
TEST_P(RepublishedAndWithdrawn, Withdrawing_an_ID_ends_what_stays_under_it) {
  const bool one = GetParam();
  publish_beside_those_under_way(p.left, second);
  ASSERT_TRUE(p.left.references.withdraw(one ? tp::publication_key(tp::reference{id, first, 0}) : id));
  EXPECT_TRUE(p.left.references.settled(tp::reference{id, first, 0}));
  EXPECT_EQ(p.left.references.totals().references, one ? 1u : 0u);
  EXPECT_EQ(described(p.left, first, 7).status, one ? tp::status::stale : tp::status::withdrawn);
  EXPECT_EQ(described(p.left, 0, 8).kind, one ? kind::description : kind::refused);
}
TEST_P(RepublishedAndWithdrawn, Withdrawing_ends_what_stays_also_if_its_content_is_the_newest_again) {
  const bool one = GetParam();
  const auto before = described(p.left, first, 7);  // as if it were half sent
  publish_beside_those_under_way(p.left, second);
  publish_beside_those_under_way(p.left, p.source);
  EXPECT_EQ(p.left.references.totals().references, 2u);
  if (one) {
    publish_beside_those_under_way(p.left, third);
    EXPECT_FALSE(p.left.references.settled(tp::reference{id, first, 0}));  // a slow one still reads it
    ASSERT_TRUE(p.left.references.withdraw(tp::reference{id, first, 0}));
  } else {
    ASSERT_TRUE(p.left.references.withdraw(id));
  }
  EXPECT_EQ(p.left.references.totals().references, one ? 1u : 0u);
  EXPECT_TRUE(p.left.references.settled(tp::reference{id, first, 0}));
  EXPECT_EQ(p.left.references.pin(before), nullptr);
}
TEST_F(RepublishedForOne, What_stays_is_served_to_its_end_also_if_its_content_is_the_newest_again) {
  publish_beside_those_under_way(p.left, second);
  publish_beside_those_under_way(p.left, p.source);
  EXPECT_EQ(described(p.left, first, 8).slot, described(p.left, 0, 9).slot);  // who begins is counted by the newest
  for (int i = 0; i < 3; ++i) pump(p, slow.t);
  ASSERT_TRUE(p.left.references.publish(third.source(), version_of(third), true, id, 0));  // which ends the newest
  EXPECT_EQ(described(p.left, first, 7).kind, kind::description);
  run_to_the_end();
  EXPECT_EQ(p.left.references.totals().transfers.completed(), 1u);
}
TEST_F(Republished, Who_only_looks_sees_what_stays_for_it) {
  publish_beside_those_under_way(p.left, second);
  const auto looks = [&](std::uint64_t version, std::uint64_t who) {
    owner::peer from;
    tp::frame m;
    m.ref = id;
    m.version = version;
    m.recipient = {who};
    tp::publication_facts facts;
    const tp::status said = p.left.references.look(from, m, facts);
    return std::pair(said, facts.version);
  };
  EXPECT_EQ(looks(first, 7), std::pair(tp::status::ok, first));
  EXPECT_EQ(looks(0, 7), std::pair(tp::status::ok, version_of(second)));
  EXPECT_EQ(looks(first, 8), std::pair(tp::status::stale, version_of(second)));
}
TEST(Republish, Between_the_last_byte_and_the_confirmation_it_costs_the_last_byte_once_more) {
  owning_pair p;
  receiving<short_chunks> x(of(7));
  int times = 0;
  p.owner_lies = [&](byte_vector& f) {
    if (kind_of(f) != kind::chunk || times == 3) return;
    const auto m = tp::detail::payload_prefix::read(std::span<const std::byte, 80>(f.data(), 80));
    if (m->offset + m->length == p.source.schema().image_bytes) times += publish_again(p.left, p.source);
  };
  const auto done = p.pull(x.t);
  ASSERT_TRUE(done);
  EXPECT_EQ(times, 3);
  EXPECT_TRUE(done->confirmed) << to_string(done->unconfirmed_because);
  EXPECT_EQ(p.left.status().completed, 1u);
}

TEST(Republish, A_peer_that_answers_with_another_nonce_for_ever_ends_the_pull_over_a_stream) {
  for (const std::uint64_t good : {0u, 3u}) {
    owning_pair p(cut{100});
    std::uint64_t chunks = 0;
    p.owner_lies = [&, lie = lie_about_chunks([](tp::frame& m) { m.nonce ^= 1; })](byte_vector& f) {
      if (kind_of(f) == kind::chunk && chunks++ >= good) lie(f);
    };
    receiving<short_chunks> x(of(7, 1));
    const auto done = p.pull(x.t);
    ASSERT_EQ(code_of(done), errc::wrong_payload);
    EXPECT_EQ(done.error().at, good * 512);
    EXPECT_LT(chunks, good + 20);
  }
}
TEST(Republish, A_peer_that_denies_every_confirmation_ends_the_pull_whatever_else_it_says) {
  // everything has come, so the pull itself is a success: each time the owner says that it does not know the serve, or
  // that it is busy, or names another serve
  for (const bool busy : {false, true}) {
    owning_pair p;
    std::uint64_t answers = 0, described = 0;
    bool wrong = false;
    p.owner_lies = [&](byte_vector& f) {
      ++answers;
      if (kind_of(f) == kind::confirmed)
        lie_about(kind::confirmed, [](tp::frame& m) {
          m.kind = kind::refused;
          m.status = tp::status::bad_request;
        })(f);
      else if (kind_of(f) == kind::chunk && (wrong = !wrong) && answers > 20)
        lie_about_chunks([](tp::frame& m) { m.nonce ^= 1; })(f);
      else if (busy && kind_of(f) == kind::description && answers > 20 && ++described % 2 == 0)
        lie_about(kind::description, [](tp::frame& m) {
          m.kind = kind::refused;
          m.status = tp::status::busy;
        })(f);
    };
    receiving<short_chunks> x(of(7));
    tp::no_transfer idle;
    p.right.end.begin_pull();
    for (int i = 0; i < 100'000 && !x.t.ended(); ++i) {
      ASSERT_TRUE(p.pump(idle, x.t));
      if (x.t.pause().count() > 0) x.t.restart();
    }
    ASSERT_TRUE(x.t.ended());
    ASSERT_TRUE(x.t.outcome());
    EXPECT_FALSE(x.t.outcome()->confirmed);
    EXPECT_LT(answers, 200u);
  }
}

TEST(Republish, A_pull_over_datagrams_goes_on) {
  for (const double loss : {0.0, 0.05}) {
    lossy_pair<> p({1200, loss, loss, 300us, 100us});
    const model source = large().fill(1);
    p.left.publish(source);
    model mine = large();
    tp::land to(mine.destination());
    datagram_pull t(to, of(7), {}, p.right.end->next_id());
    p.begin(t);
    std::uint64_t last = 0;
    int times = 0;
    while (!t.ended()) {
      ASSERT_TRUE(p.run(t, [&] { return t.ended() || t.landed_bytes() >= last + 2000; }));
      if (!t.ended() && publish_again(p.left, source)) last = t.landed_bytes(), ++times;
    }
    ASSERT_TRUE(succeeded(t.outcome()));
    EXPECT_GT(times, 8) << "more often than it may be served anew without progress";
    EXPECT_TRUE(mine.same_tensors(source) && mine.guards_intact());
  }
}
TEST(Republish, A_peer_that_answers_with_another_nonce_for_ever_ends_the_pull_over_datagrams) {
  for (const int first : {0, 40}) {
    lossy_pair<> p(in_order);
    const model source = large().fill(1);
    p.left.publish(source);
    model mine = large();
    tp::land to(mine.destination());
    datagram_pull t(to, of(7), {}, p.right.end->next_id());
    p.begin(t);
    int chunks = 0, descriptions = 0;
    p.spoil = [&](datagram& d, std::size_t n) {
      const auto bytes = std::as_writable_bytes(std::span(d)).first(n);
      if (n < 200 || !tp::detail::payload_prefix::announces_payload(bytes)) {
        descriptions += kind_of(bytes) == kind::description;
        return;
      }
      // those that come early are good, and of no use without the first
      auto m = *tp::detail::payload_prefix::read(bytes.first<80>());
      if (chunks++ < first || m.offset != t.landed_bytes()) return;
      m.nonce ^= 1;
      tp::detail::payload_prefix::write(m, bytes.first<80>());
    };
    ASSERT_TRUE(p.run(t, [&] { return t.ended(); }, 1h));
    EXPECT_EQ(code_of(t.outcome()), errc::wrong_payload);
    EXPECT_LT(descriptions, 20);
  }
}

}  // namespace republish_test
