// Steps in 8 bits of models of a policy, over TCP: what both ends have afterwards, round after round, and what those
// get that have another base.
#include "support/allocation_counter.hpp"
#include "transports/network.hpp"

#include <tensorpull/satellites/differences/kept_differences.hpp>
#include <tensorpull/satellites/differences/narrowed.hpp>
#include <tensorpull/tensors/tensor_list.hpp>

#include <limits>
#include <optional>
#include <random>

namespace narrowed_test {

using namespace test;
using net = raw_net<dense, tp::tcp>;
using step_of = tp::narrowed<tp::raw_tensors<dense>>;

/// What a step of training makes of a model: each of its floats moves a little.
std::unique_ptr<dense> trained(const dense& from, std::uint64_t seed) {
  auto made = std::make_unique<dense>(from);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 1e-3f);
  auto* const w = reinterpret_cast<float*>(&made->w);
  for (std::size_t i = 0; i < sizeof made->w / sizeof(float); ++i) w[i] += normal(random);
  return made;
}
/// Weights as a model has them.
std::unique_ptr<dense> initial() {
  auto made = std::make_unique<dense>();
  auto* const w = reinterpret_cast<float*>(&made->w);
  for (std::size_t i = 0; i < sizeof made->w / sizeof(float); ++i) w[i] = static_cast<float>(i % 1000) * 1e-3f - 0.5f;
  return made;
}

struct round_of {
  tp::reference whole, beside;

  round_of(net::downloader& owner, const dense& base, const step_of& step, std::uint32_t recipients = 0)
      : whole(*owner.add_tensors(base, {.recipients = recipients})),
        beside(*owner.add_image(step.image(), tp::difference_options(whole, step.from_version()))) {}
};

TEST(Narrowed, Both_ends_have_the_same_bits_round_after_round_and_the_owner_counts_each_recipient_once) {
  const auto base = initial(), mine = initial();
  auto owner = net::downloader::open({});
  ASSERT_TRUE(owner);
  for (std::uint64_t round = 1; round <= 4; ++round) {
    SCOPED_TRACE(round);
    const auto now = trained(*base, round), before = std::make_unique<dense>(*base);
    auto step = step_of::make(*now, *base);
    ASSERT_TRUE(succeeded(step));
    const step_of kept = std::move(*step);
    EXPECT_FALSE(same(*base, *before));
    EXPECT_FALSE(same(*base, *now)) << "8 bits are not all";
    const round_of published(*owner, *base, kept, 1);
    std::optional<serving> server(std::in_place, *owner);
    std::uint64_t came = 0;
    const auto done = tp::download_changes<net>(local(owner->port()), published.whole, *mine, tp::blocks_of_8_bits<>{},
                                                {}, &came);
    ASSERT_TRUE(confirmed(done));
    EXPECT_FALSE(done->believed);
    EXPECT_TRUE(same(*mine, *base));
    EXPECT_GT(came, sizeof(dense) / 4);
    EXPECT_LT(came, sizeof(dense) * 26 / 100);
    server.reset();
    EXPECT_TRUE(owner->settled(published.whole));
    EXPECT_EQ(owner->status_of(published.whole)->completed, 1u);
    EXPECT_LT(owner->status_of(published.whole)->bytes_sent, 2000u) << "nothing of it is sent again";
    (void)owner->withdraw(published.beside);
  }
}

TEST(Narrowed, Holds_a_chunk_of_the_pipeline) {
  const auto base = initial(), mine = initial();
  auto owner = net::downloader::open({});
  const auto step = step_of::make(*trained(*base, 1), *base);
  const round_of published(*owner, *base, *step);
  const serving server(*owner);
  const allocation_watch watch;
  const auto done = tp::download_changes<net>(local(owner->port()), published.whole, *mine, tp::blocks_of_8_bits<>{});
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*mine, *base));
  EXPECT_LT(watch.largest(), 256u * 1024) << "not all of the step";
}

TEST(Narrowed, A_recipient_that_missed_rounds_takes_the_steps_that_the_owner_keeps) {
  const auto base = initial();
  std::vector<std::unique_ptr<dense>> had;
  auto owner = net::downloader::open({});
  tp::kept_differences<step_of> kept(3);
  tp::reference whole;
  for (std::uint64_t round = 1; round <= 4; ++round) {
    kept.withdraw(*owner);
    if (whole.id) (void)owner->withdraw(whole);  // it borrows the base
    had.push_back(std::make_unique<dense>(*base));
    auto step = step_of::make(*trained(*base, round), *base);
    ASSERT_TRUE(succeeded(step));
    const auto from = step->from_version();
    kept.keep(std::move(*step), from);
    whole = *owner->add_tensors(*base);
    ASSERT_TRUE(kept.publish(*owner, whole));
  }
  const serving server(*owner);
  for (std::size_t round = 0; round < had.size(); ++round) {
    const auto mine = std::make_unique<dense>(*had[round]);
    std::uint64_t came = 7;
    const auto done = tp::download_changes<net>(local(owner->port()), whole, *mine, tp::blocks_of_8_bits<>{}, {},
                                                &came);
    ASSERT_TRUE(confirmed(done));
    EXPECT_TRUE(same(*mine, *base));
    EXPECT_EQ(came, round == 0 ? 0 : (4 - round) * (kept.bytes() / 3));
  }
}

TEST(Narrowed, Whoever_has_another_base_gets_the_whole_also_over_a_session) {
  const auto base = initial(), first = initial();
  auto owner = net::downloader::open({});
  const auto step = step_of::make(*trained(*base, 1), *base);
  ASSERT_TRUE(step);
  const round_of published(*owner, *base, *step);
  const serving server(*owner);
  auto session = net::session::connect(local(owner->port()));
  ASSERT_TRUE(session);
  for (const bool other : {true, false})
    for (const bool named : {true, false}) {
      SCOPED_TRACE(other);
      SCOPED_TRACE(named);
      const auto mine = std::make_unique<dense>(*first);
      if (other) reinterpret_cast<std::byte*>(mine.get())[9] ^= std::byte{1};
      std::uint64_t came = 7;
      const tp::blocks_of_8_bits<> scheme;
      const auto done = named ? tp::download_changes<net>(*session, published.whole, published.beside, *mine, scheme,
                                                          {}, &came)
                              : tp::download_changes<net>(*session, published.whole, *mine, scheme, {}, &came);
      ASSERT_TRUE(confirmed(done));
      EXPECT_TRUE(same(*mine, *base));
      EXPECT_EQ(came > 0, !other);
    }
}

/// Ends of a connection that cannot be made, and how often it was tried.
struct unreachable : net {
  static inline errc why{};
  static inline int tried = 0;
  template <class... A>
  static tp::result<tp::receipt> pull(A&&...) noexcept {
    ++tried;
    return tp::failure(why);
  }
  template <class... A>
  static tp::result<tp::receipt> download_tensors(A&&...) noexcept {
    return pull();
  }
};
TEST(Narrowed, An_owner_that_cannot_be_reached_is_not_asked_for_the_whole_as_well) {
  const auto mine = initial();
  for (const errc why : {errc::cancelled, errc::timed_out, errc::connection_failed, errc::connection_lost,
                         errc::bad_address, errc::unknown_host, errc::handshake_failed, errc::not_authenticated}) {
    unreachable::why = why;
    unreachable::tried = 0;
    const tp::reference whole{{1, 2}, 3, 4}, beside{{5, 6}, 0, 0};
    EXPECT_EQ(code_of(tp::download_changes<unreachable>("", whole, beside, *mine, tp::blocks_of_8_bits<>{})), why);
    EXPECT_EQ(unreachable::tried, 1) << tp::to_string(why);
  }
}

TEST(Narrowed, A_step_that_leads_to_something_else_than_the_whole_costs_a_pull_of_all) {
  const auto base = initial(), mine = initial(), elsewhere = initial();
  auto owner = net::downloader::open({});
  const auto right = step_of::make(*trained(*base, 1), *base),
             wrong = step_of::make(*trained(*elsewhere, 2), *elsewhere);
  ASSERT_TRUE(right);
  ASSERT_TRUE(wrong);
  const round_of published(*owner, *base, *wrong);
  const serving server(*owner);
  std::uint64_t came = 0;
  const auto done = tp::download_changes<net>(local(owner->port()), published.whole, *mine, tp::blocks_of_8_bits<>{},
                                              {}, &came);
  ASSERT_TRUE(succeeded(done));
  EXPECT_TRUE(same(*mine, *base));
  EXPECT_GT(came, 0u) << "it came, and was of no use";
}

TEST(Narrowed, What_cannot_be_narrowed_is_refused_by_name_and_the_base_stays) {
  const auto base = initial(), before = initial(), now = trained(*base, 1);
  auto* const w = reinterpret_cast<float*>(&now->w);
  for (const float wrong : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    w[777] = wrong;
    const auto step = step_of::make(*now, *base);
    ASSERT_EQ(code_of(step), errc::invalid_argument);
    EXPECT_EQ(step.error().name.view(), "w");
    EXPECT_TRUE(same(*base, *before));
  }
}

template <class Scheme>
void refuses_a_base_whose_tensors_share_memory() {
  float moves[70], to[70];
  for (int i = 0; i < 70; ++i) moves[i] = 0.5f, to[i] = 0.6f;
  const std::uint64_t counts[]{40, 0};
  const auto at = [](float* data) { return reinterpret_cast<std::byte*>(data); };
  const auto tensors = [&](float* a, float* b) {
    return std::vector<tp::mutable_tensor_view>{{"a", dtype::f32, {&counts[0], 1}, at(a)},
                                                {"b", dtype::f32, {&counts[0], 1}, at(b)},
                                                {"none", dtype::f32, {&counts[1], 1}, at(b) + 4}};
  };
  const auto read = tensors(to, to + 30);  // which may share theirs
  const std::vector<tp::tensor_view> now(read.begin(), read.end());
  const auto none = tp::narrowed_step<Scheme>::make(now, tensors(moves + 30, moves));
  ASSERT_EQ(code_of(none), errc::unsupported_layout);
  EXPECT_EQ(none.error().name.view(), "a");
  for (const float one : moves) EXPECT_EQ(one, 0.5f);
  float apart[80]{};
  EXPECT_TRUE(tp::narrowed_step<Scheme>::make(now, tensors(apart, apart + 40)));
}
TEST(Narrowed, A_base_whose_tensors_share_memory_is_refused_and_stays) {
  refuses_a_base_whose_tensors_share_memory<tp::blocks_of_8_bits<>>();
  refuses_a_base_whose_tensors_share_memory<tp::blocks_of_4_bits<>>();
}

/// Tensors of types that are not narrowed travel whole, and tied ones are moved once.
struct mixed {
  float w[300];
  std::int64_t steps[3];
  tp::bfloat16 b[70];
  float again[300];
};

}  // namespace narrowed_test

BOOST_HANA_ADAPT_STRUCT(narrowed_test::mixed, w, steps, b, again);

namespace narrowed_test {

TEST(Narrowed, Integers_travel_whole_and_tied_members_are_one) {
  using policy = tp::raw_tensors<tp::tied<mixed, tp::from_to{"again", "w"}>>;
  using mixed_net = tp::pipeline<policy, tp::fixed_bytes<1_KiB>, tp::tcp>;
  auto base = std::make_unique<mixed>();
  for (std::size_t i = 0; i < 300; ++i) base->w[i] = base->again[i] = static_cast<float>(i) * 0.01f;
  for (std::size_t i = 0; i < 70; ++i) base->b[i] = tp::bfloat16(static_cast<float>(i));
  const auto mine = std::make_unique<mixed>(*base), now = std::make_unique<mixed>(*base);
  for (std::size_t i = 0; i < 300; ++i) now->again[i] = now->w[i] += static_cast<float>(i % 7) * 1e-3f;
  for (std::size_t i = 0; i < 70; ++i) now->b[i] = tp::bfloat16(static_cast<float>(i) * 1.1f);
  now->steps[1] = -5'000'000'000;
  auto owner = mixed_net::downloader::open({});
  const auto step = tp::narrowed<policy>::make(*now, *base);
  ASSERT_TRUE(succeeded(step));
  EXPECT_EQ(base->steps[1], -5'000'000'000);
  EXPECT_EQ(std::memcmp(base->w, base->again, sizeof base->w), 0);
  EXPECT_NEAR(base->w[6], now->w[6], 6e-3 / 254);
  const auto whole = *owner->add_tensors(*base);
  ASSERT_TRUE(owner->add_image(step->image(), tp::difference_options(whole, step->from_version())));
  const serving server(*owner);
  std::uint64_t came = 0;
  const auto done = tp::download_changes<mixed_net>(local(owner->port()), whole, *mine, tp::blocks_of_8_bits<>{}, {},
                                                    &came);
  ASSERT_TRUE(succeeded(done));
  EXPECT_GT(came, 0u);
  EXPECT_EQ(std::memcmp(mine.get(), base.get(), sizeof(mixed)), 0);
}

using list_net = tp::pipeline<tp::tensor_list, tp::fixed_bytes<64_KiB>, tp::tcp>;

TEST(Narrowed, A_model_that_no_step_is_made_for_is_pulled_as_a_whole) {
  std::array<float, 4> w{1, 2, 3, 4}, mine{};
  float scales = 5, my_scales = 0;
  const std::uint64_t shape[] = {4};
  const auto of = [&](std::array<float, 4>& values, float& one) {
    const tp::mutable_tensor_view views[] = {{"w", dtype::f32, shape, reinterpret_cast<std::byte*>(values.data())},
                                             {"w.scales", dtype::f32, {}, reinterpret_cast<std::byte*>(&one)}};
    return std::move(*tp::dynamic_image::make(std::span<const tp::mutable_tensor_view>(views)));
  };
  const auto now = of(w, scales);
  auto model = of(mine, my_scales);
  auto owner = list_net::downloader::open({});
  const auto whole = *owner->add_tensors(now, {.recipients = 1});
  std::optional<serving> server(std::in_place, *owner);
  std::uint64_t came = 7;
  const auto done = tp::download_changes<list_net>(local(owner->port()), whole, model, tp::blocks_of_8_bits<>{}, {},
                                                   &came);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(mine, w);
  EXPECT_EQ(my_scales, scales);
  EXPECT_EQ(came, 0u);
  server.reset();
  EXPECT_EQ(owner->status_of(whole)->completed, 1u);
}

TEST(Narrowed, A_step_of_a_model_without_a_byte_comes_to_an_end) {
  const std::uint64_t shape[] = {0};
  const auto empty = [&] {
    const tp::mutable_tensor_view views[] = {{"w", dtype::f32, shape, nullptr}, {"b", dtype::i64, shape, nullptr}};
    return std::move(*tp::dynamic_image::make(std::span<const tp::mutable_tensor_view>(views)));
  };
  auto base = empty(), mine = empty();
  const auto now = empty();
  const auto step = tp::narrowed<tp::tensor_list>::make(now, base);
  ASSERT_TRUE(succeeded(step));
  auto owner = list_net::downloader::open({});
  const auto whole = *owner->add_tensors(base, {.recipients = 1});
  ASSERT_TRUE(owner->add_image(step->image(), tp::difference_options(whole, step->from_version())));
  const serving server(*owner);
  std::uint64_t came = 0;
  const auto done = tp::download_changes<list_net>(local(owner->port()), whole, mine, tp::blocks_of_8_bits<>{},
                                                   {.per_request_timeout = 5s, .retry = {.retries = 0}}, &came);
  ASSERT_TRUE(succeeded(done));
  EXPECT_GT(came, 0u);
}

}  // namespace narrowed_test
