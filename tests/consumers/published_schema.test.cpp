// Looking at what is published: its names, shapes and metadata come, no tensor is taken, and at the owner nobody counts
// for it.
#include "../image/random_image.hpp"

#include <tensorpull/consumers/any_schema/digest.hpp>
#include <tensorpull/consumers/any_schema/published_schema.hpp>
#include <tensorpull/pipeline.hpp>
#include <tensorpull/tensors/tensor_list.hpp>
#include <tensorpull/transports/over/loopback/loopback.hpp>

#include <gtest/gtest.h>

namespace published_schema_test {

using namespace tensorpull;
using net = pipeline<tensor_list, bytes_up_to<4096>, loopback>;

constexpr std::string_view said_key = "by", said_value = "me";
struct published {
  tensorpull::test::random_tensors tensors;
  metadata_entry pair{said_key, said_value};
  dynamic_image made;
  explicit published(unsigned seed)
      : tensors(seed, 1 + seed % 30, false), made(*dynamic_image::make(tensors.views(), std::span(&pair, 1))) {}
};

TEST(PublishedSchema, Says_what_is_there_whatever_the_length_of_chunks_and_counts_for_nobody) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    const published from(seed);
    const auto owner = std::make_unique<net::downloader>();
    const auto ref = owner->add_tensors(from.made, {.recipients = 1});
    ASSERT_TRUE(ref);
    for (const std::uint64_t chunk : {1u, 64u, 4096u}) {
      published_schema seen({});
      const auto done = net::pull(*owner, *ref, seen, {.window = 1}, {chunk});
      ASSERT_FALSE(done);
      EXPECT_EQ(done.error(), errc::cancelled);
      ASSERT_TRUE(seen.complete());
      const image_schema &got = seen.schema_of_image(), &want = from.made.schema();
      EXPECT_EQ(got.fingerprint, want.fingerprint);
      EXPECT_EQ(seen.described().version, ref->version);
      ASSERT_EQ(got.tensor_count, want.tensor_count);
      for (std::size_t i = 0; i < got.tensor_count; ++i) EXPECT_EQ(got.tensors[i].name, want.tensors[i].name);
      ASSERT_EQ(got.pairs().size(), 1u);
      EXPECT_EQ(got.pairs()[0].value, said_value);
    }
    const auto counts = owner->status_of(*ref);
    ASSERT_TRUE(counts);
    EXPECT_EQ(counts->acquired, 0u);
    EXPECT_EQ(counts->cancelled, 0u);
    EXPECT_FALSE(owner->settled(*ref));
  }
}

TEST(PublishedSchema, A_recipient_that_looks_first_and_then_pulls_counts_once) {
  const published from(7);
  const auto owner = std::make_unique<net::downloader>();
  const recipient_id ada{11}, names[] = {ada};
  const auto ref = owner->add_tensors(from.made, {.named = names});
  ASSERT_TRUE(ref);
  published_schema seen({});
  ASSERT_FALSE(net::pull(*owner, *ref, seen, {.window = 1, .recipient = ada}, {64}));
  EXPECT_EQ(owner->recipient_of(*ref, ada)->state, recipient_state::unseen);
  EXPECT_EQ(owner->status_of(*ref)->unlisted, 0u);
  digest to;
  ASSERT_TRUE(net::pull(*owner, *ref, to, {.recipient = ada}));
  EXPECT_EQ(owner->settlement_of(*ref)->verdict, verdict::completed);
  EXPECT_EQ(owner->settlement_of(*ref)->counts.unlisted, 0u);
  // what has ended stays so
  published_schema again({});
  EXPECT_FALSE(net::pull(*owner, *ref, again, {.window = 1, .recipient = ada}, {64}));
  EXPECT_EQ(owner->settlement_of(*ref)->counts.completed, 1u);
}

TEST(PublishedSchema, An_expected_recipient_that_has_only_looked_is_not_lost_when_its_connection_ends) {
  const published from(7);
  const auto owner = std::make_unique<net::downloader>();
  const recipient_id ada{11}, names[] = {ada};
  for (const publish_options& how : {publish_options{.named = names}, publish_options{.recipients = 1}}) {
    const auto ref = owner->add_tensors(from.made, how);
    ASSERT_TRUE(ref);
    for (int i = 0; i < 3; ++i) {
      published_schema seen({});
      EXPECT_EQ(net::pull(*owner, *ref, seen, {.window = 1, .recipient = ada}, {64}).error(), errc::cancelled);
    }
    EXPECT_EQ(owner->status_of(*ref)->acquired, 0u);
    EXPECT_EQ(owner->status_of(*ref)->lost, 0u);
  }
}

TEST(PublishedSchema, Limits_are_those_of_a_new_model_without_its_tensors) {
  const published from(12);
  const auto owner = std::make_unique<net::downloader>();
  const auto ref = owner->add_tensors(from.made);
  ASSERT_TRUE(ref);
  published_schema few({.max_tensors = 1}), narrow({.max_header_bytes = 32});
  for (published_schema* const one : {&few, &narrow}) {
    EXPECT_EQ(net::pull(*owner, *ref, *one, {.window = 1}, {64}).error(), errc::too_large);
    EXPECT_FALSE(one->complete());
  }
  const auto counts = owner->status_of(*ref);
  EXPECT_EQ(counts->cancelled + counts->acquired, 0u);
}

TEST(PublishedSchema, A_look_that_fails_counts_for_nobody_either) {
  const published from(12);
  const auto owner = std::make_unique<net::downloader>();
  const auto ref = owner->add_tensors(from.made, {.recipients = 1});
  ASSERT_TRUE(ref);
  const recipient_id ada{11};
  published_schema narrow({.max_header_bytes = 32}), other({});
  EXPECT_EQ(net::pull(*owner, *ref, narrow, {.window = 1, .recipient = ada}, {64}).error(), errc::too_large);
  reference wrong = *ref;
  ++wrong.version;
  EXPECT_EQ(net::pull(*owner, wrong, other, {.window = 1, .recipient = ada}, {64}).error(), errc::stale_version);
  EXPECT_EQ(owner->status_of(*ref)->acquired, 0u);
  digest to;
  ASSERT_TRUE(net::pull(*owner, *ref, to, {.recipient = {12}}));
  EXPECT_EQ(owner->settlement_of(*ref)->verdict, verdict::completed);
}

}  // namespace published_schema_test
