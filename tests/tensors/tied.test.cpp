// Two members of a struct that are one tensor of the image.
#include <tensorpull/image/dynamic.hpp>
#include <tensorpull/pipeline.hpp>
#include <tensorpull/tensors/structs/raw.hpp>
#include <tensorpull/tensors/tensor_list.hpp>
#include <tensorpull/transports/loopback/loopback.hpp>

#include <gtest/gtest.h>

#include <cstring>

namespace {

struct table {
  std::array<std::array<float, 3>, 4> weight;
};
struct gpt {
  table lm_head;
  std::array<float, 4> bias;
  table embed, also;
};

}  // namespace
BOOST_HANA_ADAPT_STRUCT(table, weight);
BOOST_HANA_ADAPT_STRUCT(gpt, lm_head, bias, embed, also);
namespace {

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

TEST(Tied, TheSchemaIsThatOfTheSameListMadeAtRunTime) {
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

TEST(Tied, OneRangeLandsInEveryTensorThatIsTied) {
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

TEST(Tied, NamesAreThoseAfterRenaming) {
  using renamed_and_tied = raw_tensors<
      tied<renamed<gpt, from_to{"embed", "wte"}, from_to{"lm_head", "head"}>, from_to{"wte.weight", "head.weight"}>>;
  constexpr const image_schema& schema = renamed_and_tied::schema();
  static_assert(schema.tensor_count == 3 && schema.metadata[0].key == "wte.weight" &&
                schema.metadata[0].value == "head.weight");
  gpt model{};
  for (float& f : model.lm_head.weight[1]) f = 3;
  const source_view view = renamed_and_tied::source(model);
  EXPECT_EQ(static_cast<const void*>(view.address(2)), &model.lm_head);
  renamed_and_tied::landed(model);
  EXPECT_EQ(std::memcmp(&model.embed, &model.lm_head, sizeof model.embed), 0);
}

}  // namespace
