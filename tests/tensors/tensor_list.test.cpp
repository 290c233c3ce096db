#include <tensorpull/tensors/tensor_list.hpp>

#include <gtest/gtest.h>

namespace tensor_list_test {

using namespace tensorpull;

TEST(TensorList, Reads_and_writes_the_tensors_of_its_model) {
  float weights[4] = {1, 2, 3, 4};
  const std::uint64_t shape[] = {2, 2};
  const mutable_tensor_view view{"w", dtype::f32, shape, reinterpret_cast<std::byte*>(weights)};
  auto model = tensor_list::model_type::make(std::span(&view, 1));
  ASSERT_TRUE(model);
  EXPECT_FALSE(tensor_list::is_static);
  EXPECT_TRUE(tensor_list::writable(*model));
  EXPECT_EQ(tensor_list::schema(*model).tensor_count, 1u);
  EXPECT_EQ(tensor_list::source(*model).address(0), view.data);
  EXPECT_EQ(tensor_list::destination(*model).address(0), view.data);
}

}  // namespace tensor_list_test
