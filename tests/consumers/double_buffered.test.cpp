// The old model stays to the byte until the new one is complete.
#include "../support/allocation_counter.hpp"
#include "feed.hpp"

#include <tensorpull/consumers/double_buffered.hpp>
#include <tensorpull/tensors/make_model.hpp>
#include <tensorpull/tensors/structs/raw.hpp>

#include <gtest/gtest.h>
#include <boost/hana/adapt_struct.hpp>

struct tiny_model {
  std::array<std::array<float, 5>, 3> weight;
  std::array<float, 3> bias;
};
BOOST_HANA_ADAPT_STRUCT(tiny_model, weight, bias);

namespace double_buffered_test {

using namespace test;
using tp::double_buffered;

TEST(DoubleBuffered, Swaps_only_when_a_model_is_complete) {
  model a = mixed_model().fill(1), b = mixed_model();
  const model old = mixed_model().fill(1), first = mixed_model().fill(2), second = mixed_model().fill(3);
  auto both = double_buffered::make(a.destination(), b.destination());
  ASSERT_TRUE(both);
  EXPECT_EQ(both->front_index(), 0u);
  feeder f(*both, first, 100);
  f.stops_before_finish = true;
  const allocation_watch watch;
  ASSERT_TRUE(f.run());
  EXPECT_EQ(watch.count(), 0u);
  EXPECT_EQ(both->front_index(), 0u);
  EXPECT_TRUE(a.same_tensors(old));
  ASSERT_TRUE(both->finish({}));
  EXPECT_EQ(both->front_index(), 1u);
  EXPECT_TRUE(b.same_tensors(first));
  EXPECT_EQ(both->front().where, b.source().where);

  ASSERT_TRUE(feeder(*both, second, 100).run());
  EXPECT_EQ(both->front_index(), 0u);
  EXPECT_TRUE(a.same_tensors(second));
  EXPECT_TRUE(b.same_tensors(first));
  EXPECT_EQ(both->completed(), 2u);
  EXPECT_TRUE(a.guards_intact() && b.guards_intact());
}

TEST(DoubleBuffered, An_abandoned_transfer_leaves_the_front_at_any_byte) {
  model a = mixed_model().fill(1), b = mixed_model();
  const model old = mixed_model().fill(1), other = mixed_model().fill(2);
  auto both = *double_buffered::make(a.destination(), b.destination());
  for (std::uint64_t k = 0; k < other.schema().image_bytes; k += 97) {
    feeder f(both, other, 64);
    ASSERT_TRUE(f.run(k));
    both.abandon({errc::connection_lost, 0, k, {}});
    ASSERT_TRUE(a.same_tensors(old));
    ASSERT_EQ(both.front_index(), 0u);
  }
  ASSERT_TRUE(feeder(both, other, 64).run());
  EXPECT_TRUE(b.same_tensors(other));
}

TEST(DoubleBuffered, Refuses_two_schemas_and_one_memory) {
  model a = mixed_model(), other;
  other.add("w", dtype::f32, {3}).ready();
  EXPECT_EQ(code_of(double_buffered::make(a.destination(), other.destination())), errc::schema_mismatch);
  EXPECT_EQ(code_of(double_buffered::make(a.destination(), a.destination())), errc::invalid_argument);
}

TEST(DoubleBuffered, Holds_models_of_its_own) {
  using tensors = tp::raw_tensors<tiny_model>;
  tp::double_buffered_models<tensors, tp::model_ptr<tiny_model>> made(std::move(*tp::make_model<tiny_model>()),
                                                                      std::move(*tp::make_model<tiny_model>()));
  auto both = std::move(made);
  const tiny_model* const before = &both.front();
  EXPECT_EQ(before->bias[1], 0.0f);
  tiny_model next{};
  next.bias[1] = 2.5f;
  const auto& schema = tensors::schema();
  auto& c = both.consumer();
  ASSERT_TRUE(c.begin({{1, 2}, 3, schema.fingerprint, schema.image_bytes, schema.header_bytes, 2, true}));
  std::array<std::byte, 4096> image;
  std::array<const_byte_span, 4> from;
  std::array<std::byte, 2048> slice;
  const auto g = tp::gather(tensors::source(next), 0, schema.image_bytes, from, slice);
  ASSERT_EQ(g.bytes, schema.image_bytes);
  std::size_t filled = 0;
  for (std::size_t i = 0; i < g.pieces; ++i)
    std::memcpy(image.data() + filled, from[i].data(), from[i].size()), filled += from[i].size();
  for (std::uint64_t at = 0; at < schema.image_bytes;) {
    std::array<byte_span, 1> to;
    at += c.prepare(at, schema.image_bytes - at, to).bytes;
    std::memcpy(to[0].data(), image.data() + at - to[0].size(), to[0].size());
  }
  EXPECT_EQ(&both.front(), before);
  ASSERT_TRUE(c.finish({}));
  EXPECT_NE(&both.front(), before);
  EXPECT_EQ(both.front().bias[1], 2.5f);
  EXPECT_EQ(both.completed(), 1u);
}

}  // namespace double_buffered_test
