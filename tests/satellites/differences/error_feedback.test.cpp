// What a step left out comes with the next: a receiver that adds all steps up has what was meant, but for the last
// remainder. In 4 bits, in every element type.
#include "transports/network.hpp"

#include <tensorpull/satellites/differences/narrowed.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace error_feedback_test {

using namespace tensorpull;
using ::test::code_of;
using ::test::succeeded;

using in_4_bits = blocks_of_4_bits<256, all_tensors>;
using feedback = error_feedback<in_4_bits>;

constexpr dtype type_of(float) { return dtype::f32; }
constexpr dtype type_of(double) { return dtype::f64; }
constexpr dtype type_of(float16) { return dtype::f16; }
constexpr dtype type_of(bfloat16) { return dtype::bf16; }

/// Two floating tensors, one of an odd number of elements, and integers between them.
template <class T>
struct model {
  std::vector<T> a = std::vector<T>(301), b = std::vector<T>(7);
  std::vector<std::int32_t> steps = std::vector<std::int32_t>(3);
  std::uint64_t counts[3]{301, 3, 7};

  std::vector<mutable_tensor_view> views() {
    const auto bytes = [](auto& v) { return reinterpret_cast<std::byte*>(v.data()); };
    return {{"a", type_of(T{}), {&counts[0], 1}, bytes(a), {}, false},
            {"steps", dtype::i32, {&counts[1], 1}, bytes(steps), {}, false},
            {"b", type_of(T{}), {&counts[2], 1}, bytes(b), {}, false}};
  }
  friend bool operator==(const model& x, const model& y) {
    return std::memcmp(x.a.data(), y.a.data(), x.a.size() * sizeof(T)) == 0 &&
           std::memcmp(x.b.data(), y.b.data(), x.b.size() * sizeof(T)) == 0 && x.steps == y.steps;
  }
};
template <class T>
T element(double value) {
  return detail::narrowed_to<T>(value);
}

template <class T>
struct ErrorFeedback : testing::Test {};
using elements = testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(ErrorFeedback, elements);

/// As a client's running variances, which the owner averages and all others evaluate with.
TYPED_TEST(ErrorFeedback, Takes_no_variance_below_zero) {
  using T = TypeParam;
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> variance(0, 1.5);
  feedback left;
  for (int round = 0; round < 20; ++round) {
    model<T> now, sent;
    for (auto* w : {&now.a, &now.b})
      for (T& v : *w) v = element<T>(variance(random));
    for (auto* w : {&sent.a, &sent.b})
      for (T& v : *w) v = element<T>(1.0);
    if (round % 4 == 3) sent = now;  // nothing to send but errors
    ASSERT_TRUE(left.step(now.views(), sent.views()));
    for (const auto* w : {&sent.a, &sent.b})
      for (const T& v : *w) ASSERT_GE(detail::widened(v), 0.0) << "round " << round;
  }
}

/// A small variance beside a large one, which no code can reach from its base: one round later it can, and is right.
TYPED_TEST(ErrorFeedback, An_error_that_cannot_be_sent_does_not_grow) {
  using T = TypeParam;
  feedback left;
  for (int round = 0; round < 100; ++round) {
    model<T> now, sent;
    for (T& v : now.a) v = element<T>(0.02);
    for (T& v : sent.a) v = element<T>(1.0);
    now.a[0] = element<T>(470.0);
    ASSERT_TRUE(left.step(now.views(), sent.views()));
  }
  for (int round = 0; round < 20; ++round) {
    model<T> now, sent;
    for (T& v : now.a) v = element<T>(5.0);
    for (T& v : sent.a) v = element<T>(4.0);
    ASSERT_TRUE(left.step(now.views(), sent.views()));
    EXPECT_GT(detail::widened(sent.a[1]), round < 15 ? -1.0 : 3.0) << round;
  }
}

TYPED_TEST(ErrorFeedback, Brings_what_was_left_out_with_a_later_step) {
  using T = TypeParam;
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal(0, 1e-2);
  feedback left;
  double without = 0, with = 0, meant_sum = 0;
  std::vector<double> meant(301), got(301), alone(301);
  for (int round = 0; round < 40; ++round) {
    model<T> base, now, plain_base;
    for (std::size_t i = 0; i < 301; ++i) {
      // small steps always in one direction, beside one that is large: codes of 4 bits alone never say them
      now.a[i] = element<T>(i == 0 ? 1.0 : 0.02 + 0.1 * std::abs(normal(random)));
      meant[i] += detail::widened(now.a[i]);
    }
    now.steps[1] = round;
    const auto here = now;
    const auto step = left.step(now.views(), base.views());
    ASSERT_TRUE(succeeded(step));
    EXPECT_EQ(base.steps[1], round) << "integers travel whole";
    EXPECT_EQ(now.steps, here.steps);
    auto untouched = here;
    ASSERT_TRUE(narrowed_step<in_4_bits>::make(
        [&] {
          auto v = untouched.views();
          return std::vector<tensor_view>(v.begin(), v.end());
        }(),
        plain_base.views()));
    for (std::size_t i = 0; i < 301; ++i) {
      got[i] += detail::widened(base.a[i]);
      alone[i] += detail::widened(plain_base.a[i]);
    }
  }
  for (std::size_t i = 1; i < 301; ++i) {
    with += std::abs(got[i] - meant[i]);
    without += std::abs(alone[i] - meant[i]);
    meant_sum += meant[i];
    // no more is missing than half a code of the last step, whose scale is about 1 / 7; BF16 rounds sums of 1 as well
    EXPECT_LT(std::abs(got[i] - meant[i]), 0.1) << i;
  }
  EXPECT_LT(with, 0.15 * meant_sum);
  EXPECT_GT(without, 0.8 * meant_sum) << "alone they are lost, so this says something";
}

TYPED_TEST(ErrorFeedback, Keeps_nothing_twice_and_nothing_of_another_model) {
  using T = TypeParam;
  feedback left;
  model<T> base, now;
  for (std::size_t i = 0; i < 301; ++i) now.a[i] = element<T>(0.01 * static_cast<double>(i % 50));
  ASSERT_TRUE(left.step(now.views(), base.views()));
  const T remainder = element<T>(detail::widened(now.a[3]) - detail::widened(base.a[3]));
  ASSERT_NE(detail::widened(remainder), 0.0);

  // another model: other names, or other sizes
  model<T> other;
  auto views = other.views(), from = base.views();
  views[0].name = from[0].name = "c";
  const auto none = left.step(views, from);
  ASSERT_EQ(code_of(none), errc::schema_mismatch);
  EXPECT_TRUE(none.error().name.view().empty());
  EXPECT_TRUE(other == model<T>());
  views.pop_back();
  from.pop_back();
  EXPECT_FALSE(left.step(views, from));

  // a step that fails: what was left out is in the model, and not kept as well
  model<T> bad;
  bad.b[6] = element<T>(std::numeric_limits<double>::quiet_NaN());
  const auto held = base;
  const auto failed = left.step(bad.views(), base.views());
  ASSERT_EQ(code_of(failed), errc::invalid_argument);
  EXPECT_EQ(failed.error().name.view(), "b");
  EXPECT_TRUE(base == held);
  for (std::size_t i = 0; i < 301; ++i)
    EXPECT_EQ(detail::widened(bad.a[i]), detail::widened(now.a[i]) - detail::widened(base.a[i])) << i;
  bad.b[6] = T{};
  model<T> zero;
  const auto all_that_was_left = bad;
  ASSERT_TRUE(left.step(bad.views(), zero.views()));
  EXPECT_TRUE(bad == all_that_was_left);

  // and after a move
  feedback moved_left = std::move(left);
  model<T> next, again;
  const T now_left = element<T>(detail::widened(bad.a[3]) - detail::widened(zero.a[3]));
  next.a[4] = element<T>(-1.0);  // or errors below zero would wait
  ASSERT_TRUE(moved_left.step(next.views(), again.views()));
  EXPECT_EQ(detail::widened(next.a[3]), detail::widened(now_left));
}

TYPED_TEST(ErrorFeedback, Leaves_all_as_it_was_if_the_lists_do_not_fit) {
  using T = TypeParam;
  feedback left;
  model<T> base, now;
  for (std::size_t i = 0; i < 301; ++i) now.a[i] = element<T>(0.01 * static_cast<double>(i % 50));
  ASSERT_TRUE(left.step(now.views(), base.views()));
  const double remainder = detail::widened(element<T>(detail::widened(now.a[3]) - detail::widened(base.a[3])));
  ASSERT_NE(remainder, 0.0);

  model<T> next, held;
  const auto refuses = [&](errc why, const auto& model_views, const auto& base_views) {
    const auto none = left.step(model_views, base_views);
    EXPECT_EQ(code_of(none), why);
    EXPECT_TRUE(next == model<T>() && held == model<T>());
  };
  auto fewer = held.views(), named = held.views(), strided = held.views(), nowhere = held.views(), tied = next.views(),
       tied_base = held.views();
  fewer.pop_back();
  refuses(errc::schema_mismatch, next.views(), fewer);
  named[2].name = "c";
  refuses(errc::schema_mismatch, next.views(), named);
  const std::int64_t every_second[]{2 * sizeof(T)};
  strided[2].strides_bytes = every_second;
  refuses(errc::unsupported_layout, next.views(), strided);
  nowhere[2].data = nullptr;
  refuses(errc::invalid_argument, next.views(), nowhere);
  // what is left out would be added twice, and to the base as well
  tied[2].data = tied[0].data + 8 * sizeof(T);
  refuses(errc::unsupported_layout, tied, held.views());
  tied_base[2].data = tied_base[0].data;
  refuses(errc::unsupported_layout, next.views(), tied_base);
  refuses(errc::unsupported_layout, next.views(), next.views());

  ASSERT_TRUE(left.step(next.views(), held.views()));
  EXPECT_EQ(detail::widened(next.a[3]), remainder) << "it has been kept";
}

TYPED_TEST(ErrorFeedback, Takes_another_model_after_a_step_that_failed) {
  using T = TypeParam;
  feedback left;
  model<T> base, now;
  auto other = now.views(), from = base.views();
  other[0].name = from[0].name = "c";
  now.b[0] = element<T>(std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(left.step(other, from));
  now.b[0] = T{};
  EXPECT_TRUE(left.step(now.views(), base.views()));
  EXPECT_FALSE(left.step(other, from));
}

TYPED_TEST(ErrorFeedback, Never_makes_what_is_finite_infinite) {
  using T = TypeParam;
  if constexpr (sizeof(T) != 8) {  // such differences of F64 have no scale
    using word = detail::element_bits<T>;
    const double infinity = std::numeric_limits<double>::infinity();
    const T most = std::bit_cast<T>(static_cast<word>(std::bit_cast<word>(element<T>(infinity)) - 1));
    feedback left;
    for (int round = 0; round < 4; ++round) {
      model<T> base, now;
      for (std::size_t i = 0; i < 301; ++i)
        now.a[i] = i % 3 == 0 ? most : element<T>(detail::widened(most) * (0.45 + static_cast<double>(i % 2) * 0.1));
      ASSERT_TRUE(left.step(now.views(), base.views())) << round;
      for (std::size_t i = 0; i < 301; ++i) {
        ASSERT_TRUE(std::isfinite(detail::widened(now.a[i])) && std::isfinite(detail::widened(base.a[i]))) << i;
      }
    }
  }
}

/// Some updates are lost on the way: what was in them arrives later, also after a restart of the program between.
TYPED_TEST(ErrorFeedback, What_nobody_took_comes_with_the_next_step) {
  using T = TypeParam;
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> step(1e-3, 2e-3);
  feedback left;
  std::vector<double> meant(301), got(301);
  model<T> kept;
  for (int round = 0; round < 12; ++round) {
    model<T> base, now;
    for (std::size_t i = 0; i < 301; ++i) meant[i] += detail::widened(now.a[i] = element<T>(step(random)));
    const model<T> before = base;
    ASSERT_TRUE(left.step(now.views(), base.views()));
    if (round == 3 || round == 4 || round == 9) {
      model<T> was = before;
      ASSERT_TRUE(left.lost(base.views(), was.views()));
    } else {
      for (std::size_t i = 0; i < 301; ++i) got[i] += detail::widened(base.a[i]);
    }
    if (round == 6) {  // the program ends, and goes on with what it kept
      const auto views = left.left(base.views());
      ASSERT_EQ(views.size(), 2U);
      EXPECT_EQ(views[0].name, "a");
      EXPECT_EQ(views[1].name, "b");
      std::memcpy(kept.a.data(), views[0].data, kept.a.size() * sizeof(T));
      std::memcpy(kept.b.data(), views[1].data, kept.b.size() * sizeof(T));
      left = feedback();
      EXPECT_TRUE(left.left(base.views()).empty());
      auto of = kept.views();
      std::vector<tensor_view> file{of[2], of[0]};
      ASSERT_TRUE(left.load(base.views(), file));
      kept.a.assign(301, T{});  // it has a copy
    }
  }
  for (std::size_t i = 0; i < 301; ++i) EXPECT_LT(std::abs(meant[i] - got[i]), 1e-3) << i;
}

/// As a mask of attention, which no step moves.
TYPED_TEST(ErrorFeedback, An_infinity_or_NaN_that_stands_still_has_no_error) {
  using T = TypeParam;
  feedback left;
  model<T> base;
  base.b[1] = base.b[2] = element<T>(-std::numeric_limits<double>::infinity());
  base.b[4] = element<T>(std::numeric_limits<double>::infinity());
  base.b[5] = element<T>(std::numeric_limits<double>::quiet_NaN());
  double meant = 0, got = 0;
  for (int round = 0; round < 6; ++round) {
    model<T> now = base, sent = base;
    for (std::size_t i = 0; i < 301; ++i) now.a[i] = element<T>(i == 0 ? 1.0 : 0.06);
    meant += detail::widened(now.a[1]);
    ASSERT_TRUE(left.step(now.views(), sent.views())) << round;
    EXPECT_EQ(std::memcmp(sent.b.data(), base.b.data(), sizeof(T) * 7), 0);
    if (round == 2) {
      model<T> was = base;
      ASSERT_TRUE(left.lost(sent.views(), was.views()));
    } else {
      got += detail::widened(sent.a[1]);
    }
    const auto views = left.left(now.views());
    feedback again;
    ASSERT_TRUE(again.load(now.views(), views)) << "what is left are numbers";
  }
  EXPECT_LT(std::abs(meant - got), 0.25) << "and the other tensors' errors are in the next step";
}

TYPED_TEST(ErrorFeedback, What_was_kept_is_of_one_model_and_of_numbers) {
  using T = TypeParam;
  feedback left;
  model<T> base, now, errors;
  for (std::size_t i = 0; i < 301; ++i) now.a[i] = element<T>(0.01 * static_cast<double>(i % 50));
  model<T> was = base;
  EXPECT_EQ(code_of(left.lost(base.views(), was.views())), errc::schema_mismatch) << "there was no step";
  ASSERT_TRUE(left.step(now.views(), base.views()));
  const auto bytes_left = [&] {
    const auto views = left.left(base.views());
    return std::vector<std::byte>(views.at(0).data, views.at(0).data + 301 * sizeof(T));
  };
  const auto before = bytes_left();

  auto views = errors.views();
  const auto refuses = [&](errc why, const char* name, std::vector<tensor_view> kept) {
    const auto none = left.load(base.views(), kept);
    ASSERT_EQ(code_of(none), why);
    EXPECT_EQ(none.error().name.view(), name);
    EXPECT_EQ(bytes_left(), before);
  };
  refuses(errc::schema_mismatch, "a", {});
  refuses(errc::schema_mismatch, "b", {views[0]});
  refuses(errc::schema_mismatch, "", {views[0], views[1], views[2]});
  auto shorter = views;
  const std::uint64_t six = 6;
  shorter[2].shape = {&six, 1};
  refuses(errc::schema_mismatch, "b", {views[0], shorter[2]});
  auto nowhere = views;
  nowhere[2].data = nullptr;
  refuses(errc::invalid_argument, "b", {views[0], nowhere[2]});
  errors.b[6] = element<T>(std::numeric_limits<double>::infinity());
  refuses(errc::invalid_argument, "b", {views[0], views[2]});

  auto other = base.views(), of = was.views();
  other[0].name = of[0].name = "c";
  EXPECT_EQ(code_of(left.lost(other, of)), errc::schema_mismatch);
  of.pop_back();
  EXPECT_EQ(code_of(left.lost(base.views(), of)), errc::schema_mismatch);
  EXPECT_EQ(bytes_left(), before);
  EXPECT_TRUE(left.left(other).empty()) << "of another model";
}

TEST(ErrorFeedbackOverTcp, Of_a_policys_model_is_pulled_in_4_bits) {
  using ::test::dense;
  using net = pipeline<raw_tensors<dense>, fixed_bytes<64_KiB>, tcp>;
  using step_of = narrowed<raw_tensors<dense>, blocks_of_4_bits<>>;
  auto owner = net::downloader::open({});
  ASSERT_TRUE(owner);
  error_feedback<> left;
  const auto global = std::make_unique<dense>(), mine = std::make_unique<dense>(*global);
  for (std::uint64_t round = 1; round <= 3; ++round) {
    const auto now = std::make_unique<dense>(*global), sent = std::make_unique<dense>(*global);
    auto* const w = reinterpret_cast<float*>(&now->w);
    for (std::size_t i = 0; i < sizeof now->w / sizeof(float); ++i)
      w[i] += 1e-3f * static_cast<float>((i * 37 + round) % 101);
    const auto step = step_of::make(*now, *sent, left);
    ASSERT_TRUE(succeeded(step));
    const auto whole = *owner->add_tensors(*sent);
    const auto beside = *owner->add_image(step->image(), difference_options(whole, step->from_version()));
    const ::test::serving server(*owner);
    std::uint64_t came = 0;
    *mine = *global;
    const auto done = download_changes<net>(::test::local(owner->port()), whole, *mine, blocks_of_4_bits<>{}, {},
                                            &came);
    ASSERT_TRUE(succeeded(done));
    EXPECT_TRUE(::test::same(*mine, *sent));
    EXPECT_GT(came, sizeof(dense) / 8);
    EXPECT_LT(came, sizeof(dense) * 14 / 100);
    // who asks in 8 bits gets the whole
    const auto other = std::make_unique<dense>(*global);
    ASSERT_TRUE(download_changes<net>(::test::local(owner->port()), whole, *other, blocks_of_8_bits<>{}, {}, &came));
    EXPECT_EQ(came, 0u);
    EXPECT_TRUE(::test::same(*other, *sent));
    (void)owner->withdraw(beside);
  }
}

}  // namespace error_feedback_test
