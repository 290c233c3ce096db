// Two members of a struct that are one tensor of the image.
#include <tensorpull/consumers/any_schema/digest.hpp>
#include <tensorpull/consumers/average/weighted_average.hpp>
#include <tensorpull/consumers/double_buffered.hpp>
#include <tensorpull/consumers/tee.hpp>
#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/pipeline.hpp>
#include <tensorpull/tensors/make_model.hpp>
#include <tensorpull/tensors/structs/raw.hpp>
#include <tensorpull/tensors/tensor_list.hpp>
#include <tensorpull/transports/over/loopback/loopback.hpp>

#include <gtest/gtest.h>

#include <cstring>

namespace tied_test {

struct table {
  std::array<std::array<float, 3>, 4> weight;
};
struct gpt {
  table lm_head;
  std::array<float, 4> bias;
  table embed, also;
};

}  // namespace tied_test
BOOST_HANA_ADAPT_STRUCT(tied_test::table, weight);
BOOST_HANA_ADAPT_STRUCT(tied_test::gpt, lm_head, bias, embed, also);
namespace tied_test {

using namespace tensorpull;
using tied_gpt = tied<gpt, from_to{"lm_head.weight", "also.weight"}, from_to{"embed.weight", "also.weight"}>;
using policy = raw_tensors<tied_gpt>;

static_assert(tensor_policy<policy> && tensor_policy<raw_tensors<gpt>>);
static_assert(std::is_same_v<policy::model_type, gpt>);
static_assert(policy::schema().tensor_count == 2 && policy::schema().tensors[0].name == "also.weight" &&
              policy::schema().tensors[1].name == "bias");
static_assert(policy::schema().metadata_count == 2);
static_assert(policy::schema().metadata[0].key == "embed.weight" &&
              policy::schema().metadata[0].value == "also.weight");
static_assert(policy::schema().metadata[1].key == "lm_head.weight");
static_assert(raw_tensors<gpt>::schema().metadata_count == 0 && raw_tensors<gpt>::schema().tensor_count == 4);

/// What an owner has that knows of no struct: the kept tensors, and the ties as metadata.
struct untyped {
  float weight[4][3], bias[4];
  std::uint64_t weight_shape[2] = {4, 3}, bias_shape[1] = {4};
  metadata_entry ties[2] = {{"lm_head.weight", "also.weight"}, {"embed.weight", "also.weight"}};
  dynamic_image image() {
    const mutable_tensor_view views[] = {
        {"also.weight", dtype::f32, weight_shape, reinterpret_cast<std::byte*>(weight)},
        {"bias", dtype::f32, bias_shape, reinterpret_cast<std::byte*>(bias)}};
    return std::move(*dynamic_image::make(views, ties));
  }
};

TEST(Tied, The_schema_is_that_of_the_same_list_made_at_run_time) {
  untyped list{};
  const auto image = list.image();
  EXPECT_EQ(policy::schema().fingerprint, image.schema().fingerprint);
  EXPECT_EQ(policy::schema().image_bytes, image.schema().image_bytes);
  std::byte a[512], b[512];
  ASSERT_LE(policy::schema().header_bytes, sizeof a);
  const std::size_t n = write_header(policy::schema(), 0, a);
  ASSERT_EQ(n, write_header(image.schema(), 0, b));
  EXPECT_EQ(std::memcmp(a, b, n), 0);
}

TEST(Tied, One_range_lands_in_every_tensor_that_is_tied) {
  using from_net = pipeline<tensor_list, fixed_bytes<40>, loopback>;
  using net = pipeline<policy, fixed_bytes<40>, loopback>;
  untyped list{};
  for (int i = 0; i < 4; ++i) {
    list.bias[i] = static_cast<float>(100 + i);
    for (int k = 0; k < 3; ++k) list.weight[i][k] = static_cast<float>(10 * i + k + 1);
  }
  const auto image = list.image();
  const auto owner = std::make_unique<from_net::downloader>();
  const auto ref = owner->add_tensors(image);
  ASSERT_TRUE(ref);
  gpt model{};
  ASSERT_TRUE(net::download_tensors(*owner, *ref, model));
  EXPECT_EQ(std::memcmp(&model.also, list.weight, sizeof list.weight), 0);
  EXPECT_EQ(std::memcmp(&model.embed, list.weight, sizeof list.weight), 0);
  EXPECT_EQ(std::memcmp(&model.lm_head, list.weight, sizeof list.weight), 0);
  EXPECT_EQ(std::memcmp(&model.bias, list.bias, sizeof list.bias), 0);

  // Back again: the update is the kept tensor's.
  model.also.weight[2][1] = -5;
  const auto device = std::make_unique<net::downloader>();
  const auto update = device->add_tensors(model);
  untyped back{};
  auto into = back.image();
  ASSERT_TRUE(from_net::download_tensors(*device, *update, into));
  EXPECT_EQ(std::memcmp(back.weight, &model.also, sizeof back.weight), 0);
  EXPECT_EQ(std::memcmp(back.bias, list.bias, sizeof back.bias), 0);

  // A struct without the ties is another schema.
  using untied = pipeline<raw_tensors<gpt>, fixed_bytes<40>, loopback>;
  EXPECT_EQ(untied::download_tensors(*owner, *ref, model).error(), errc::schema_mismatch);
}

/// The bytes of `from` came into `to`, also into the members that are tied.
void expect_all_landed(const gpt& to, const gpt& from) {
  EXPECT_EQ(std::memcmp(&to.also, &from.also, sizeof to.also), 0);
  EXPECT_EQ(std::memcmp(&to.bias, &from.bias, sizeof to.bias), 0);
  EXPECT_EQ(std::memcmp(&to.embed, &from.also, sizeof to.embed), 0);
  EXPECT_EQ(std::memcmp(&to.lm_head, &from.also, sizeof to.lm_head), 0);
}

// A law: whatever consumer completes a landing leaves every member as the owner's model has it.
TEST(Tied, Every_consumer_that_completes_a_model_writes_all_its_members) {
  using net = pipeline<policy, fixed_bytes<40>, loopback, chunk_and_image_digest>;
  gpt theirs{};
  for (int i = 0; i < 12; ++i)
    theirs.also.weight[static_cast<std::size_t>(i / 3)][static_cast<std::size_t>(i % 3)] = static_cast<float>(i + 1);
  theirs.bias = {5, 6, 7, 8};
  const auto owner = std::make_unique<net::downloader>();
  const auto ref = owner->add_tensors(theirs);
  ASSERT_TRUE(ref);
  {
    gpt mine{};
    land to(policy::destination(mine));
    ASSERT_TRUE(net::pull(*owner, *ref, to));
    expect_all_landed(mine, theirs);
  }
  {
    gpt mine{};
    land into(policy::destination(mine));
    digest copied;
    tensorpull::tee to(into, copied);
    ASSERT_TRUE(net::pull(*owner, *ref, to));
    expect_all_landed(mine, theirs);
  }
  {
    gpt first{}, second{};
    auto both = double_buffered::make(policy::destination(first), policy::destination(second));
    ASSERT_TRUE(both);
    ASSERT_TRUE(net::pull(*owner, *ref, *both));
    expect_all_landed(second, theirs);
  }
  {
    double_buffered_models<policy, model_ptr<gpt>> both(std::move(*make_model<gpt>()), std::move(*make_model<gpt>()));
    ASSERT_TRUE(net::pull(*owner, *ref, both.consumer()));
    expect_all_landed(both.front(), theirs);
  }
  const auto average_into = [&]<partial_updates Partial>() {
    gpt mine{};
    auto buffers = chunk_buffers::make(4096, 1);
    ASSERT_TRUE(buffers);
    auto average = weighted_average<Partial>::make(policy::destination(mine), *buffers);
    ASSERT_TRUE(average);
    typename weighted_average<Partial>::update update(*average, 2, {.peer = "a", .round = 1});
    ASSERT_TRUE(net::pull(*owner, *ref, update));
    ASSERT_TRUE(average->finish());
    expect_all_landed(mine, theirs);
  };
  average_into.operator()<partial_updates::error_on_partial>();
  average_into.operator()<partial_updates::staged>();
}

TEST(Tied, A_landing_that_fails_leaves_the_members_that_are_tied) {
  gpt mine{};
  mine.embed.weight[0][0] = 3;
  land to(policy::destination(mine));
  const image_schema& schema = policy::schema();
  ASSERT_TRUE(to.begin({{1, 2}, 3, schema.fingerprint, schema.image_bytes, schema.header_bytes, 2, true}));
  to.abandon({});
  EXPECT_EQ(mine.embed.weight[0][0], 3);
}

TEST(Tied, Names_are_those_after_renaming) {
  using renamed_and_tied = raw_tensors<
      tied<renamed<gpt, from_to{"embed", "wte"}, from_to{"lm_head", "head"}>, from_to{"wte.weight", "head.weight"}>>;
  constexpr const image_schema& schema = renamed_and_tied::schema();
  static_assert(schema.tensor_count == 3 && schema.metadata[0].key == "wte.weight" &&
                schema.metadata[0].value == "head.weight");
  gpt model{};
  for (float& f : model.lm_head.weight[1]) f = 3;
  const source_view view = renamed_and_tied::source(model);
  EXPECT_EQ(static_cast<const void*>(view.address(2)), &model.lm_head);
  renamed_and_tied::destination(model).complete();
  EXPECT_EQ(std::memcmp(&model.embed, &model.lm_head, sizeof model.embed), 0);
}

}  // namespace tied_test
