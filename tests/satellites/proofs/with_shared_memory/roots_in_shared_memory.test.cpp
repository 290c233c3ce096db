// What a root changes over memory that two programs share.
#include "root_laws.hpp"
#include "satellites/shared_memory/lying_memory.hpp"

namespace roots_in_shared_memory_test {

using namespace test;

struct shared_room {
  template <class Model>
  using net = shared_net<Model>;
  template <class Model>
  auto open() {
    return net<Model>::downloader::open({.listen = name});
  }
  const std::string& where() const { return name; }

  std::string name = abstract_name();
};
INSTANTIATE_TYPED_TEST_SUITE_P(SharedMemory, Roots, shared_room);

TEST(RootsInSharedMemory, M3_places_that_are_valid_and_wrong_are_found_in_the_first_group) {
  const auto shared = tp::make_shared_model<mlp>();
  ASSERT_TRUE(shared);
  generator(5).fill(std::as_writable_bytes(std::span(shared->get(), 1)));
  const auto tree = tp::proof_tree::make(tp::raw_tensors<mlp>::source(**shared));
  ASSERT_TRUE(succeeded(tree));
  const auto by = tp::proof::make(tree->root(), tree->image_bytes(), 16, finest_values(*tree));
  ASSERT_TRUE(succeeded(by));
  const auto copy = blank<mlp>();
  tp::land to(tp::raw_tensors<mlp>::destination(*copy));
  tp::proved checked(to, *by);
  EXPECT_EQ(code_of(pull_from(*shared, changed([](auto& w) { w[10] += 8; }), checked)), errc::digest_mismatch);
  EXPECT_EQ(checked.proved_bytes(), 0u);
  EXPECT_FALSE(checked.refused());
  ASSERT_TRUE(succeeded(pull_from(*shared, [](std::span<const int>) { return std::vector<int>(); }, checked)));
  EXPECT_TRUE(same(*copy, **shared));
}

}  // namespace roots_in_shared_memory_test
