// Which tensors a step rounds: those of other shapes keep every bit, whichever way a step is applied.
#include "support/results.hpp"

#include <tensorpull/satellites/differences/narrowed.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/tensor_list.hpp>
#include <tensorpull/transports/over/loopback/loopback.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace narrowed_tensors_test {

using namespace tensorpull;
using ::test::code_of;
using ::test::succeeded;

constexpr bool matrix(std::initializer_list<std::uint64_t> shape, std::size_t block = 256) {
  return matrices::narrows("w", {shape.begin(), shape.size()}, block);
}
TEST(Matrices, Have_two_dimensions_and_the_elements_of_a_block) {
  EXPECT_TRUE(matrix({16, 16}) && matrix({1, 256}) && matrix({4, 4, 4, 4}) && matrix({2, 1u << 20}));
  EXPECT_FALSE(matrix({}) || matrix({1u << 20}) || matrix({15, 17}) || matrix({0, 1000}) || matrix({1000, 0}));
  constexpr std::uint64_t huge = std::uint64_t{1} << 63;
  EXPECT_TRUE(matrix({huge, huge}) && matrix({2, huge}) && !matrix({huge, huge, 0})) << "products do not overflow";
}

/// A convolution, a small kernel, running variances of unlike size, a bias, and a counter.
struct network {
  struct tensor {
    std::string name;
    std::vector<std::uint64_t> shape;
    std::vector<float> values;
  };
  std::vector<tensor> floats{{"conv", {16, 8, 3, 3}, std::vector<float>(1152)},
                             {"kernel", {3, 5, 17}, std::vector<float>(255)},
                             {"running_var", {512}, std::vector<float>(512)},
                             {"bias", {300}, std::vector<float>(300)},
                             {"scale", {}, std::vector<float>(1)}};
  std::int64_t count = 0;

  explicit network(unsigned seed) : count(seed) {
    std::mt19937_64 random(seed);
    std::lognormal_distribution<float> values(0, 3);
    for (tensor& t : floats)
      for (float& v : t.values) v = values(random);
  }
  dynamic_image image() {
    std::vector<mutable_tensor_view> views{{"count", dtype::i64, {}, reinterpret_cast<std::byte*>(&count)}};
    for (tensor& t : floats)
      views.push_back({t.name, dtype::f32, t.shape, reinterpret_cast<std::byte*>(t.values.data())});
    return *dynamic_image::make(std::span<const mutable_tensor_view>(views));
  }
  std::set<std::string> other_than(const network& o) const {
    std::set<std::string> names;
    for (std::size_t i = 0; i < floats.size(); ++i)
      if (floats[i].values != o.floats[i].values) names.insert(floats[i].name);
    return names;
  }
};

template <class Scheme>
struct NarrowedTensors : testing::Test {};
using named_tensors = tensors_named<"running_var", "kernel", "count">;
using schemes = testing::Types<blocks_of_8_bits<>, blocks_of_4_bits<>, blocks_of_8_bits<256, all_tensors>,
                               blocks_of_8_bits<256, named_tensors>, blocks_of_4_bits<256, named_tensors>>;
TYPED_TEST_SUITE(NarrowedTensors, schemes);

TYPED_TEST(NarrowedTensors, That_are_not_chosen_keep_every_bit_at_both_ends) {
  using Scheme = TypeParam;
  using net = pipeline<tensor_list, fixed_bytes<1024>, loopback>;
  const auto chosen = [](const network::tensor& t) { return Scheme::narrows(t.name, dtype::f32, t.shape); };
  network now(1), base(2), mine(2), other(2);
  std::set<std::string> rounded;
  for (const auto& t : now.floats)
    if (chosen(t) && t.values.size() > 1) rounded.insert(t.name);  // a step of one element is exact
  ASSERT_FALSE(rounded.empty());
  const auto model = now.image();
  auto moves = base.image();
  const auto step = narrowed<tensor_list, Scheme>::make(model, moves);
  ASSERT_TRUE(succeeded(step));
  EXPECT_EQ(base.count, 1);
  EXPECT_EQ(base.other_than(now), rounded);
  for (const auto& t : base.floats)
    for (const float v : t.values) ASSERT_GE(v, 0.0F);

  typename net::downloader owner;
  const auto whole = *owner.add_tensors(moves);
  ASSERT_TRUE(owner.add_image(step->image(), difference_options(whole, step->from_version())));
  auto here = mine.image();
  std::uint64_t came = 0;
  const auto done = download_changes<net>(owner, whole, here, Scheme{}, {}, &came);
  ASSERT_TRUE(succeeded(done));
  EXPECT_GT(came, 0U);
  EXPECT_EQ(mine.other_than(base), std::set<std::string>{});
  EXPECT_EQ(mine.count, 1);
  // a recipient that has named another choice is not told wrong bytes
  auto elsewhere = other.image();
  const auto all = download_changes<net>(owner, whole, elsewhere, scaled_blocks<256, 8, tensors_named<"bias">>{}, {},
                                         &came);
  ASSERT_TRUE(succeeded(all));
  EXPECT_EQ(came, 0U);
  EXPECT_EQ(other.other_than(base), std::set<std::string>{});
}

}  // namespace narrowed_tensors_test
