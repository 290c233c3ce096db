// Unmodified hosts pull from the owner of a small machine, over links that lose, double, delay and re-order; and it
// answers as the owner of a host does.
#include "support/embedded_link.hpp"

#include <tensorpull/integrity/policies.hpp>
#include <tensorpull/integrity/xxhash/chunk_crc32c.hpp>

namespace owner_pulled_test {

using namespace test;
using kind = tp::frame_kind;
using state = tp::recipient_state;

constexpr tp::ref_id id{1, 2};

template <std::uint64_t N = 1112, class Integrity = tp::image_digest>
using pull = tp::datagram_transfer<tp::land, tp::bytes_up_to<N>, Integrity>;

tp::pull_request of(std::uint64_t who = 9) {
  tp::pull_request r;
  r.ref = id;
  r.recipient = {who};
  return r;
}

struct named_link {
  link_conditions link;
  const char* name;
};
class EmbeddedOwnerOver : public ::testing::TestWithParam<named_link> {};
constexpr named_link links[] = {
    {{600, 0, 0, 500us, 0us}, "clean"},           {{600, 0.05, 0, 500us, 0us}, "lossy"},
    {{600, 0.05, 0.05, 500us, 0us}, "doubling"},  {{600, 0.02, 0.02, 2000us, 1800us}, "reordering"},
    {{600, 0.05, 0, 20'000us, 0us}, "far"},       {{1200, 0.2, 0.1, 1000us, 900us}, "bad"},
    {{600, 0.4, 0.3, 1000us, 5000us}, "hopeless"}};
INSTANTIATE_TEST_SUITE_P(Links, EmbeddedOwnerOver, ::testing::ValuesIn(links),
                         [](const auto& i) { return i.param.name; });

/// A whole pull; the model may change as soon as the owner says that it has completed.
template <class Owner, class Transfer>
void expect_completed(const link_conditions& link, std::uint64_t seed, tp::outcome expected = tp::outcome::completed) {
  pulled_by_a_host<Owner> pair(link, seed);
  device_model source = random_model(seed);
  const model twin = twin_of(source);
  pair.image = twin.image_bytes();
  pair.owner.publish(source, id, seed + 7);
  model target = model_on_a_host();
  tp::land to(target.destination());
  auto request = of();
  request.chunk_digest = Transfer::asks;
  typename Transfer::type t(to, request, {}, pair.right.end->next_id());
  bool changed = false;
  pair.after_answer = [&] {
    if (pair.owner.state() >= state::completed && !changed) source = random_model(seed + 1), changed = true;
  };
  const auto done = pair.pull(t);
  ASSERT_TRUE(done) << seed << ' ' << to_string(done.error().code) << ' ' << t.landed_bytes();
  EXPECT_EQ(done->outcome, expected);
  EXPECT_TRUE(done->confirmed) << to_string(done->unconfirmed_because);
  EXPECT_EQ(target.image_bytes(), pair.image);
  EXPECT_TRUE(target.guards_intact());
  EXPECT_TRUE(changed);
  EXPECT_EQ(pair.owner.state(), expected == tp::outcome::completed ? state::completed : state::completed_unverified);
  EXPECT_EQ(pair.owner.recipient(), tp::recipient_id{9});
  EXPECT_GE(pair.owner.bytes_served(), pair.image.size());
  double most = link.jitter.count() > 0 ? 3 : 1.3;
  if (link.loss > 0.1) most = 6;
  EXPECT_LE(pair.owner.bytes_served(), most * static_cast<double>(pair.image.size()));
  EXPECT_EQ(pair.not_understood, 0u) << to_string(pair.last_error);
  EXPECT_LE(pair.down.sent, pair.up.sent * 2) << "the host's farewells and doubles";
}
template <class Integrity, std::uint64_t N = 1112>
struct with {
  using type = pull<N, Integrity>;
  static constexpr tp::digest_kind asks = tp::chunk_digest_kind<Integrity>;
};

TEST_P(EmbeddedOwnerOver, A_host_gets_every_byte_and_the_owner_hears_of_it) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    expect_completed<small_owner<512>, with<tp::image_digest>>(GetParam().link, seed);
    expect_completed<small_owner<100>, with<tp::image_digest, 77>>(GetParam().link, seed);
  }
}
TEST_P(EmbeddedOwnerOver, A_host_gets_a_digest_with_each_chunk) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    expect_completed<small_owner<512, tp::xxh3_64>, with<tp::chunk_and_image_digest>>(GetParam().link, seed);
    expect_completed<small_owner<512, tp::basic_crc32c<tp::crc32c_small>>, with<tp::chunk_crc32c_and_image_digest>>(
        GetParam().link, seed);
    expect_completed<small_owner<512, tp::xxh3_64>, with<tp::chunk_digest>>(GetParam().link, seed,
                                                                            tp::outcome::completed_unverified);
  }
  expect_completed<small_owner<512>, with<tp::unverified>>(GetParam().link, 4, tp::outcome::completed_unverified);
}
TEST_P(EmbeddedOwnerOver, A_radio_of_128_bytes_describes_in_pieces_and_one_of_256_at_once) {
  auto link = GetParam().link;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    link.datagram_bytes = 128;
    expect_completed<small_owner<48, tp::detail::no_hash, 128>, with<tp::image_digest>>(link, seed);
    link.datagram_bytes = 256;
    expect_completed<small_owner<176, tp::basic_crc32c<tp::crc32c_small>, 256>,
                     with<tp::chunk_crc32c_and_image_digest>>(link, seed);
  }
}

struct EmbeddedOwnerPulled : testing::Test {
  static constexpr link_conditions lossy{600, 0.05, 0.05, 500us, 300us};
  pulled_by_a_host<small_owner<>> pair{lossy};
  device_model source = random_model(1);
  model target = model_on_a_host();
  tp::land to{target.destination()};
  byte_vector image = twin_of(source).image_bytes();
};

TEST_F(EmbeddedOwnerPulled, A_host_waits_for_a_model_that_is_in_the_making) {
  pair.owner.busy(200);
  pull<> t(to, of(), {}, pair.right.end->next_id());
  int answered = 0;
  pair.after_answer = [&] {
    if (++answered == 5) pair.owner.publish(source, id, 3), pair.image = image;
  };
  const auto done = pair.pull(t);
  ASSERT_TRUE(confirmed(done));
  EXPECT_EQ(target.image_bytes(), image);
}

TEST_F(EmbeddedOwnerPulled, A_host_that_gives_up_says_so_and_may_come_back) {
  pair.owner.publish(source, id, 3);
  pair.image = image;
  pull<> t(to, of(), {}, pair.right.end->next_id());
  pair.after_answer = [&] {
    if (t.landed_bytes() > 4000 && !t.ended()) t.give_reason(5), t.fail({errc::cancelled, 0, 0, {}});
  };
  EXPECT_FALSE(pair.pull(t));
  EXPECT_EQ(pair.owner.state(), state::cancelled);
  EXPECT_EQ(pair.owner.reason(), 5u);
  pair.after_answer = {};
  tp::land again(target.destination());
  pull<> second(again, of(), {}, pair.right.end->next_id());
  const auto done = pair.pull(second);
  ASSERT_TRUE(confirmed(done));
  EXPECT_EQ(target.image_bytes(), image);
  EXPECT_EQ(pair.owner.state(), state::completed);
}

TEST_F(EmbeddedOwnerPulled, Named_tensors_and_other_schemas_fail_by_name_and_at_once) {
  pair.owner.publish(source, id, 3);
  const std::string_view names[] = {"fc1.bias"};
  model part;
  part.add("fc1.bias", dtype::f32, {60}).ready();
  tp::land to_part(part.destination());
  auto request = of();
  request.subset = names;
  pull<> subset(to_part, request, {}, pair.right.end->next_id());
  const auto before = pair.now;
  auto done = pair.pull(subset);
  ASSERT_EQ(code_of(done), errc::unsupported_request);
  tp::land to_other(part.destination());
  auto other = of();
  other.schema = &part.schema(), other.fingerprint = part.schema().fingerprint;
  pull<> mismatch(to_other, other, {}, pair.right.end->next_id());
  done = pair.pull(mismatch);
  EXPECT_EQ(code_of(done), errc::schema_mismatch);
  EXPECT_TRUE(part.untouched());
  EXPECT_LT(pair.now - before, 30s);
}

/// Pulls these tensors of a device that has no slices, over a clean link of such datagrams.
template <class Owner>
void expect_no_slices(std::size_t datagram_bytes, std::size_t tensors) {
  pulled_by_a_host<Owner> pair({datagram_bytes, 0, 0, 500us, 0us});
  const device_model source = random_model(1);
  pair.owner.publish(source, id, 3);
  model part;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < tensors; ++i) names.push_back("layers." + std::to_string(100 + i));
  std::vector<tp::tensor_slice> rows;
  for (const auto& name : names) part.add(name, dtype::f32, {2}), rows.push_back({name, 1, 3});
  part.ready();
  for (const bool sliced : {false, true}) {
    tp::land to(part.destination());
    auto request = of();
    request.part = true;
    if (sliced) request.slices = rows;
    pull<> t(to, request, {}, pair.right.end->next_id());
    const auto before = pair.now;
    EXPECT_EQ(code_of(pair.pull(t)), errc::unsupported_request) << datagram_bytes << ' ' << tensors << ' ' << sliced;
    EXPECT_LT(pair.now - before, 10s);
    EXPECT_TRUE(part.untouched());
  }
}
TEST(EmbeddedOwnerAskedForSlices, Refuses_at_once_however_long_the_request_is) {
  for (const std::size_t tensors : {1u, 5u, 40u}) {
    expect_no_slices<small_owner<512>>(600, tensors);
    expect_no_slices<small_owner<176, tp::detail::no_hash, 256>>(256, tensors);
    expect_no_slices<small_owner<48, tp::detail::no_hash, 128>>(128, tensors);
  }
}

TEST_F(EmbeddedOwnerPulled, A_host_that_is_started_again_in_the_middle_of_a_description_in_pieces) {
  pulled_by_a_host<small_owner<48, tp::detail::no_hash, 128>> radio({128, 0, 0, 500us, 0us});
  radio.owner.publish(source, id, 3);
  radio.image = image;
  for (int pieces = 1; pieces <= 4; ++pieces) {
    pull<> gone(to, of(), {}, radio.right.end->next_id());
    gone.fits(128);
    radio.right.end->begin_pull();
    radio.run(gone, [&] { return radio.down.sent >= static_cast<std::uint64_t>(pieces); });
    radio.up.on_its_way.clear(), radio.down.on_its_way.clear(), radio.down.sent = 0;
    radio.right.start_again(128);
  }
  pull<> t(to, of(), {}, radio.right.end->next_id());
  const auto before = radio.now;
  const auto done = radio.pull(t);
  ASSERT_TRUE(confirmed(done));
  EXPECT_EQ(target.image_bytes(), image);
  EXPECT_LT(radio.now - before, 5s);
}

// The owner of a host and that of a small machine are asked the same by one recipient. What they say may differ in the
// nonce and the window alone.
TEST(EmbeddedOwnerBesideTheOwnerOfAHost, Both_say_the_same) {
  std::size_t compared = 0, ended = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    generator g(seed);
    const device_model source = random_model(1);
    const model twin = twin_of(source);
    const auto image = twin.image_bytes();
    const std::uint64_t version = version_of(twin), size = image.size();
    small_owner<> small;
    small.publish(source, id, seed);
    datagram_party<> host(seed, 592);
    host.publish(twin, id, 2);
    tp::no_transfer idle;
    std::uint64_t nonces[2] = {1, 1};
    std::uint32_t last_id = 100;
    bool apart = false, may_differ = false;
    for (int i = 0; i < 40 && small.state() != state::completed && small.state() != state::completed_unverified; ++i) {
      tp::frame q;
      const std::uint64_t dice = g.below(16);
      q.kind = dice < 15 ? kind::confirm : kind::cancel;
      if (dice < 12) q.kind = kind::pull;
      if (dice < 3 || i == 0) q.kind = kind::describe;
      q.id = g.below(16) == 0 && i > 0 ? last_id - static_cast<std::uint32_t>(g.below(5)) : ++last_id;
      q.ref = g.below(20) == 0 && i > 0 ? tp::ref_id{1, 3} : id;
      if (q.kind != kind::describe) q.version = version;
      if (q.kind != kind::describe && g.below(8) == 0 && q.kind == kind::pull)
        q.version = g.below(2) == 0 ? version + 1 : 0;
      q.recipient = {9};
      if (q.kind == kind::pull) {
        const std::uint64_t places[] = {0,
                                        8,
                                        size,
                                        size + 1,
                                        size - 1,
                                        size - 512,
                                        ~std::uint64_t{0},
                                        std::uint64_t{1} << 63,
                                        g.below(size),
                                        twin.schema().header_bytes - 3};
        const std::uint32_t lengths[] = {0, 1, 511, 512, 513, 0xffffffff, static_cast<std::uint32_t>(g.below(600))};
        q.offset = places[g.below(std::size(places))], q.length = lengths[g.below(std::size(lengths))];
        q.fingerprint = g.below(3) != 0 ? 0 : twin.schema().fingerprint + g.below(2);
        q.chunk_digest = g.below(8) == 0 ? static_cast<tp::digest_kind>(77) : tp::digest_kind::none;
      } else if (q.kind != kind::describe) {
        q.digest = version + (g.below(4) == 0 ? 1 : 0), q.flag = g.below(8) != 0;
        q.status = g.below(2) == 0 ? tp::status::digest_mismatch : tp::status::ok;
        if (g.below(6) == 0) q.recipient = {};
      }
      // An old request behind one that changed nothing: a host's end, which has one peer, takes it for late; a small
      // owner, which several peers ask, does not.
      apart = q.id != last_id && may_differ;
      if (apart) break;
      const bool right_nonce = g.below(5) != 0;
      answers said[2];
      for (int which = 0; which < 2; ++which) {
        if (const auto record = host.references.recipient_of(id, {9}); which == 1 && record)
          nonces[1] = record->nonce;  // one that was refused has not heard its new one
        q.nonce = right_nonce ? nonces[which] : 12345;
        const frame f = encode(q);
        if (which == 0) {
          said[0] = answers_of(small, f.bytes(), 1000, image);
        } else {
          ASSERT_TRUE(host.end->received(idle, f.bytes(), 1'000'000us));
          tp::datagram_plan plan;
          host.end->plan_datagram(idle, plan, host.room(), 1'000'000us);
          const byte_vector bytes = bytes_of(plan);
          if (plan.bytes > 0) host.end->sent(idle, plan, true);
          said[1] = read_answers(bytes, image);
        }
        if (said[which].size() == 1 && said[which][0].nonce != 0) nonces[which] = said[which][0].nonce;
      }
      ASSERT_EQ(said[0].size(), said[1].size()) << seed << ' ' << i << ' ' << static_cast<int>(q.kind);
      if (q.kind != kind::pull) may_differ = said[0].empty() || said[0][0].kind == kind::refused;
      if (said[0].empty()) continue;
      const tp::frame &a = said[0][0], &b = said[1][0];
      const auto fields = [](const tp::frame& m) {
        return std::tuple(m.kind, m.status, m.id, m.ref.high, m.ref.low, m.version, m.offset, m.length, m.digest,
                          m.fingerprint, m.image_bytes, m.data_start, m.tensors, m.delay_ms, m.flag, m.memory);
      };
      ASSERT_EQ(fields(a), fields(b)) << seed << ' ' << i << ' ' << static_cast<int>(q.kind) << ": "
                                      << static_cast<int>(a.kind) << ' ' << static_cast<int>(a.status) << " and "
                                      << static_cast<int>(b.kind) << ' ' << static_cast<int>(b.status);
      ++compared;
    }
    ended += small.state() == state::completed || small.state() == state::completed_unverified;
    if (!apart && ended != 0 && host.references.recipient_of(id, {9})) {
      EXPECT_EQ(small.state() == state::completed, host.references.recipient_of(id, {9})->state == state::completed)
          << seed;
    }
  }
  std::printf("%zu answers, %zu ended\n", compared, ended);
  EXPECT_GT(compared, 2000u);
  EXPECT_GT(ended, 30u);
}

}  // namespace owner_pulled_test
