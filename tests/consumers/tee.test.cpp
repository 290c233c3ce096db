// Two consumers of one transfer: the same bytes, the same calls, and an end that fits both.
#include "feed.hpp"

#include <tensorpull/consumers/any_schema/digest.hpp>
#include <tensorpull/consumers/average/weighted_average.hpp>
#include <tensorpull/consumers/land.hpp>
#include <tensorpull/consumers/tee.hpp>

#include <gtest/gtest.h>

#include <string>

namespace tee_test {

using namespace test;
using tp::tee;

/// Records what it is told, and fails, or has no memory, when it is told to.
struct recorder {
  static constexpr bool irrevocable = false;
  std::size_t room = 64;
  std::string fails_at{};
  std::string calls{};
  byte_vector bytes{};
  std::array<std::byte, 64> scratch{};

  tp::result<void> note(std::string_view what) {
    if (!calls.ends_with(what)) {
      if (!calls.empty()) calls += ' ';
      calls += what;
    }
    if (fails_at == what) return tp::failure(errc::io);
    return {};
  }
  static std::uint64_t fingerprint() noexcept { return 0; }
  static const tp::image_schema* schema() noexcept { return nullptr; }
  tp::result<void> begin(const tp::description&) { return note("begin"); }
  tp::prepared prepare(std::uint64_t, std::uint64_t length, std::span<byte_span> out) {
    const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(length, room));
    if (n == 0 || out.size() < 2) return {};
    out[0] = std::span(scratch).first(n / 2);  // in two pieces, one of them may be empty
    out[1] = std::span(scratch).subspan(n / 2, n - n / 2);
    return {2, n};
  }
  tp::result<void> commit(std::uint64_t offset, const_byte_span b) {
    EXPECT_EQ(offset, bytes.size()) << "in order, without gaps";
    bytes.insert(bytes.end(), b.begin(), b.end());
    return note("commit");
  }
  tp::result<void> chunk(std::uint64_t, std::uint64_t) { return note("chunk"); }
  tp::result<void> finish(const tp::receipt&) { return note("finish"); }
  void abandon(const tp::error&) { (void)note("abandon"); }
};

TEST(Digest, Is_the_images_version_for_any_schema) {
  const model m = mixed_model().fill(1);
  for (const std::uint64_t chunk : {1u, 100u, 100000u}) {
    tp::digest d;
    ASSERT_TRUE(feeder(d, m, chunk).run());
    EXPECT_EQ(d.value(), version_of(m));
    EXPECT_EQ(d.bytes(), m.schema().image_bytes);
  }
  tp::digest other(m.schema().fingerprint + 1);
  EXPECT_EQ(code_of(feeder(other, m, 100).run()), errc::schema_mismatch);
  tp::digest this_one(m.schema().fingerprint);
  EXPECT_TRUE(feeder(this_one, m, 100).run());
  EXPECT_TRUE(feeder(this_one, m, 100).run()) << "once more from the start";
  EXPECT_EQ(this_one.value(), version_of(m));
}

TEST(Tee, Gives_both_the_same_bytes) {
  const model m = mixed_model().fill(2);
  for (const std::uint64_t piece : {1u, 3u, 63u, 65u, 1000u}) {
    model to = mixed_model();
    tp::land land(to.destination());
    recorder seen;
    tee both(land, seen);
    EXPECT_EQ(both.fingerprint(), m.schema().fingerprint);
    ASSERT_TRUE(feeder(both, m, 500, piece).run());
    EXPECT_TRUE(to.same_tensors(m));
    EXPECT_EQ(seen.bytes, m.image_bytes());
    EXPECT_TRUE(seen.calls.ends_with("chunk finish")) << seen.calls;
  }
}

TEST(Tee, Can_be_nested) {
  const model m = mixed_model().fill(3);
  model to = mixed_model();
  tp::land land(to.destination());
  tp::digest digest;
  recorder seen;
  tee inner(digest, seen);
  tee outer(inner, land);
  EXPECT_EQ(outer.schema(), land.schema());
  ASSERT_TRUE(feeder(outer, m, 500).run());
  EXPECT_TRUE(to.same_tensors(m));
  EXPECT_EQ(digest.value(), version_of(m));
  EXPECT_EQ(seen.bytes, m.image_bytes());
}

TEST(Tee, Where_one_fails_both_are_abandoned_but_not_who_finished) {
  const model m = mixed_model().fill(4);
  struct expectation {
    const char *first_fails_at, *second_fails_at, *first, *second;
  };
  for (const auto& e :
       {expectation{"begin", "", "begin abandon", ""}, expectation{"", "begin", "begin abandon", "begin abandon"},
        expectation{"commit", "", "begin commit abandon", "begin abandon"},
        expectation{"", "commit", "begin commit abandon", "begin commit abandon"},
        expectation{"chunk", "", "begin commit chunk abandon", "begin commit abandon"},
        expectation{"", "chunk", "begin commit chunk abandon", "begin commit chunk abandon"},
        expectation{"", "finish", "begin commit chunk abandon", "begin commit chunk finish abandon"},
        expectation{"finish", "", "begin commit chunk finish abandon", "begin commit chunk finish"}}) {
    recorder first{64, e.first_fails_at}, second{64, e.second_fails_at};
    tee both(first, second);
    ASSERT_FALSE(feeder(both, m, 1 << 20).run());
    EXPECT_EQ(first.calls, e.first);
    EXPECT_EQ(second.calls, e.second);
  }
}

TEST(Tee, Waits_with_the_observer) {
  recorder first, second{0};
  tee both(first, second);
  std::array<byte_span, 4> out;
  EXPECT_EQ(both.prepare(0, 100, out).bytes, 0u);
  second.room = 10;
  EXPECT_EQ(both.prepare(0, 100, out).bytes, 10u);
  const std::array<std::byte, 8> bytes{};
  second.room = 0;
  EXPECT_EQ(code_of(both.commit(0, bytes)), errc::out_of_memory) << "memory that was there and is gone";
}

TEST(Tee, Of_an_irrevocable_consumer_is_irrevocable) {
  using update = tp::weighted_average<>::update;
  static_assert(tp::consumer<tee<tp::land, update>>);
  static_assert(tee<tp::land, update>::irrevocable && tee<update, tp::land>::irrevocable &&
                !tee<tp::land, tp::digest>::irrevocable);
  model kept, result;
  for (model* m : {&kept, &result}) m->add("w", dtype::f32, {300}).ready();
  model from;
  from.add("w", dtype::f32, {300}).ready();
  for (std::size_t i = 0; i < 300; ++i) {
    const float v = static_cast<float>(i) * 0.5f;
    std::memcpy(from.destination().address(0) + i * 4, &v, 4);
  }
  auto buffers = *tp::chunk_buffers::make(128);
  auto average = *tp::weighted_average<>::make(result.destination(), buffers);
  tp::land land(kept.destination());
  update u(average, 2, {"peer", 1});
  tee both(land, u);
  ASSERT_TRUE(feeder(both, from, 99, 10).run());
  ASSERT_TRUE(average.finish());
  EXPECT_TRUE(kept.same_tensors(from));
  EXPECT_TRUE(result.same_tensors(from));
}

TEST(Tee, Refuses_an_image_that_the_observer_does_not_take) {
  const model m = mixed_model().fill(5);
  model other;
  other.add("w", dtype::f32, {3}).ready();
  recorder first;
  tp::land second(other.destination());
  tee both(first, second);
  EXPECT_EQ(both.fingerprint(), other.schema().fingerprint);
  EXPECT_EQ(code_of(feeder(both, m, 100).run()), errc::schema_mismatch);
  EXPECT_EQ(first.calls, "");
  EXPECT_TRUE(other.untouched());
}

}  // namespace tee_test
