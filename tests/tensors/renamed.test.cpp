#include "models.hpp"

#include <tensorpull/tensors/structs/raw.hpp>

#include <gtest/gtest.h>

namespace renamed_test {

using namespace tensorpull;

using torch_names = raw_tensors<renamed<test::block, from_to{"up.bias", "shift"}, from_to{"up", "0"},
                                        from_to{"down", "2"}, from_to{"scale", "\"s\"\n"}>>;
static_assert(std::is_same_v<torch_names::model_type, test::block>);
static_assert(torch_names::schema().tensor_count == 5);
static_assert(torch_names::schema().tensors[0].name == "0.weight" && torch_names::schema().tensors[1].name == "2.bias");
static_assert(torch_names::schema().tensors[2].name == "2.weight" && torch_names::schema().tensors[3].name == "shift");
static_assert(torch_names::schema().tensors[4].name == "\"s\"\n");

TEST(Renamed, Order_addresses_and_header_follow_the_new_names) {
  const test::block model{};
  const source_view source = torch_names::source(model);
  EXPECT_EQ(static_cast<const void*>(source.address(0)), &model.up.weight);
  EXPECT_EQ(static_cast<const void*>(source.address(1)), &model.down.bias);
  EXPECT_EQ(static_cast<const void*>(source.address(3)), &model.up.bias);
  EXPECT_EQ(static_cast<const void*>(source.address(4)), &model.scale);
  // Names that JSON escapes take the slow way to the same length.
  EXPECT_EQ(source.schema->header_bytes, header_length(source.schema->entries(), {}));
}

TEST(Renamed, The_same_names_have_the_same_fingerprint) {
  using swapped = raw_tensors<renamed<test::block, from_to{"up", "down"}, from_to{"down", "up"}>>;
  EXPECT_EQ(swapped::schema().fingerprint, raw_tensors<test::block>::schema().fingerprint);
  EXPECT_NE(torch_names::schema().fingerprint, raw_tensors<test::block>::schema().fingerprint);
  const test::block model{};
  EXPECT_EQ(static_cast<const void*>(swapped::source(model).address(0)), &model.up.bias) << "which is called down.bias";
}

TEST(Renamed, A_prefix_is_whole_components) {
  constexpr detail::name_change change{"l1", "x"};
  static_assert(change.fits("l1") && change.fits("l1.w") && !change.fits("l10") && !change.fits("l") &&
                !change.fits("al1"));
}

}  // namespace renamed_test
