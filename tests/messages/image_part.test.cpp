// A part of a set is an image of its own: every number in it is right for the part.
#include "image/header_windows.hpp"
#include "support/models.hpp"

#include <tensorpull/messages/detail/image_part.hpp>
#include <tensorpull/tensors/structs/raw.hpp>

#include <boost/hana/adapt_struct.hpp>

namespace image_part_test {

struct layer {
  float weight[20];
  float bias[3];
  bool on[5];
};
struct six_layers {
  layer layers[6], also;
};

}  // namespace image_part_test

BOOST_HANA_ADAPT_STRUCT(image_part_test::layer, weight, bias, on);
BOOST_HANA_ADAPT_STRUCT(image_part_test::six_layers, layers, also);

namespace image_part_test {

namespace tp = tensorpull;
using tp::detail::image_part;
using enum tp::detail::part_of_set;

/// Both parts at each limit against the image of the same tensors that arrange() makes.
void expect_images_of_their_own(const tp::image_schema& whole) {
  const std::vector<std::uintptr_t> where(whole.tensor_count);
  for (const std::uint64_t limit : {0u, 3u, 5u, 12u, 40u, 80u, 5000u})
    for (const auto which : {small, large}) {
      const auto part = image_part::make(whole, where.data(), limit, which);
      ASSERT_TRUE(part);
      const auto size = tp::detail::measure_part(whole, limit, which);
      std::vector<tp::tensor_entry> entries;
      for (const tp::tensor_entry& t : whole.entries())
        if (tp::detail::belongs(t, limit, which)) entries.push_back(t);
      ASSERT_EQ(size.tensors, entries.size());
      if (part->empty()) {
        EXPECT_TRUE(entries.empty());
        continue;
      }
      const tp::image_schema& got = part->schema();
      const auto expected = tp::arrange(entries);
      ASSERT_TRUE(expected);
      EXPECT_EQ(got.fingerprint, expected->fingerprint);
      EXPECT_EQ(got.image_bytes, expected->image_bytes);
      EXPECT_EQ(got.image_bytes, size.image_bytes) << "a receiver measures before it makes anything";
      EXPECT_EQ(got.metadata_count, 0u);
      EXPECT_EQ(got.of_members, whole.of_members) << "its BOOL elements are checked like those of the whole";
      EXPECT_EQ(test::header_in_windows(got), test::header_in_windows(*expected)) << limit;
    }
}

TEST(ImagePart, Of_a_struct_is_an_image_of_its_own) {
  expect_images_of_their_own(tp::raw_tensors<six_layers>::schema());
}

TEST(ImagePart, Of_a_struct_with_ties_is_an_image_without_metadata) {
  using tied = tp::raw_tensors<
      tp::tied<six_layers, tp::from_to{"layers.0.weight", "also.weight"}, tp::from_to{"layers.3.on", "also.on"}>>;
  ASSERT_EQ(tied::schema().metadata_count, 2u);
  expect_images_of_their_own(tied::schema());
}

TEST(ImagePart, Of_a_list_with_escaped_names_and_metadata_is_an_image_of_its_own) {
  const auto mixed = test::mixed_model();
  expect_images_of_their_own(mixed.schema());
  float numbers[40]{};
  const std::uint64_t shapes[] = {1, 3, 10, 40};
  std::vector<tp::tensor_view> views;
  for (const auto& name : {"a\n\"", "b\x01", "c\\", "d"})
    views.push_back({name, tp::dtype::f32, {shapes + views.size(), 1}, reinterpret_cast<const std::byte*>(numbers)});
  const tp::metadata_entry pairs[] = {{"format", "p\"t"}};
  const auto image = tp::dynamic_image::make(views, pairs);
  ASSERT_TRUE(image);
  expect_images_of_their_own(image->schema());
}

}  // namespace image_part_test
