// The tree of an image of any length: its root is the digest of the file, each level proves it, and no other values do.
#include "proved_model.hpp"

namespace proof_tree_test {

using namespace test;
using namespace test::proved;

std::vector<tp::blake3_value> values_of(const tp::proof_tree& tree, unsigned level) {
  std::vector<tp::blake3_value> out;
  if (tree.is_root_alone()) return out;
  const tp::image_schema& schema = tree.image().schema();
  for (std::size_t i = 0; i < schema.tensor_count; ++i)
    if (schema.tensors[i].name == tp::level_name(level).view()) {
      const auto* at = tree.image().source().address(i);
      out.resize(static_cast<std::size_t>(schema.tensors[i].extents()[0]));
      std::memcpy(out.data(), at, out.size() * sizeof out[0]);
    }
  return out;
}
std::uint64_t data_for(std::uint64_t image_bytes) {
  const std::uint64_t header = bytes_model(100'000, 1).schema().header_bytes;
  return image_bytes - header;
}

class ProofTree : public testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Lengths, ProofTree,
                         testing::Values(100, group - 1, group, group + 1, 2 * group, 2 * group + 1, 3 * group - 7,
                                         5 * group, 7 * group + 1, 8 * group, 33 * group + 4321),
                         [](const auto& i) { return "Bytes_" + std::to_string(i.param); });

TEST_P(ProofTree, Its_root_is_the_digest_of_the_file_and_each_level_proves_it) {
  const model m = bytes_model(data_for(GetParam()), 1);
  const auto tree = tp::proof_tree::make(m.source());
  ASSERT_TRUE(succeeded(tree));
  const byte_vector image = m.image_bytes();
  EXPECT_EQ(tree->root(), blake3_of(image));
  EXPECT_EQ(tree->is_root_alone(), image.size() <= group);
  for (unsigned level = tp::least_group_level; level < 40; ++level) {
    auto values = values_of(*tree, level);
    EXPECT_EQ(values.empty(), tp::groups_of(image.size(), level) == 1) << level;
    const auto by = tp::proof::make(tree->root(), image.size(), level, std::move(values));
    ASSERT_TRUE(succeeded(by)) << level;
    for (std::uint64_t i = 0; i < by->groups(); ++i) {
      const std::uint64_t at = i * by->group_bytes();
      tp::detail::group_hash<> hash(at / 1024);
      hash.update(const_byte_span(image).subspan(at, std::min(by->group_bytes(), image.size() - at)));
      EXPECT_TRUE(by->holds(i, hash)) << level << ' ' << i;
      hash.update(byte_vector(1));
      EXPECT_FALSE(by->holds(i, hash)) << "a byte too many";
    }
  }
}
TEST_P(ProofTree, No_other_values_are_a_proof) {
  const model m = bytes_model(data_for(GetParam()), 1), other = bytes_model(data_for(GetParam()), 2);
  const auto tree = tp::proof_tree::make(m.source()), others = tp::proof_tree::make(other.source());
  const std::uint64_t bytes = tree->image_bytes();
  generator random(7);
  for (unsigned level = tp::least_group_level; level < 24; ++level) {
    const auto right = values_of(*tree, level);
    const auto refused = [&](std::vector<tp::blake3_value> values, const char* what) {
      EXPECT_EQ(code_of(tp::proof::make(tree->root(), bytes, level, std::move(values))), errc::digest_mismatch)
          << what << " at " << level;
    };
    EXPECT_EQ(code_of(tp::proof::make(others->root(), bytes, level, right)),
              right.empty() ? errc{} : errc::digest_mismatch);
    if (right.empty()) {
      refused(std::vector<tp::blake3_value>(1), "another value than the root");
      refused(std::vector<tp::blake3_value>(2), "too many");
      continue;
    }
    refused({}, "none");
    refused(values_of(*others, level), "those of another image");
    refused({right.begin(), right.end() - 1}, "too few");
    auto longer = right;
    longer.push_back(right.back());
    refused(longer, "too many");
    if (right.size() > 2) refused(values_of(*tree, level + 1), "those of another level");
    for (int k = 0; k < 20; ++k) {
      auto changed = right;
      changed[random.below(changed.size())][random.below(32)] ^= static_cast<std::byte>(1u << random.below(8));
      refused(changed, "a bit");
    }
    auto swapped = right;
    std::swap(swapped[0], swapped[1]);
    refused(swapped, "two in each other's place");
    // as many groups, and another length
    if (bytes % group != 1) {
      EXPECT_TRUE(tp::proof::make(tree->root(), bytes - 1, level, right)) << "the last group's bytes tell its length";
    }
  }
  EXPECT_EQ(code_of(tp::proof::make(tree->root(), bytes, 15, {})), errc::invalid_argument);
  EXPECT_EQ(code_of(tp::proof::make(tree->root(), bytes, 63, {})), errc::invalid_argument);
}
TEST(ProofTree, An_empty_model_and_a_level_within_memory) {
  model empty;
  empty.ready();
  const auto tree = tp::proof_tree::make(empty.source());
  ASSERT_TRUE(succeeded(tree));
  EXPECT_EQ(tree->root(), blake3_of(empty.image_bytes()));
  EXPECT_EQ(tp::groups_of(0, 16), 1u);
  EXPECT_EQ(tp::level_within(std::uint64_t{1} << 30, 4096), 23u);
  EXPECT_EQ(tp::level_within((std::uint64_t{1} << 30) + 1, 4096), 24u);
  EXPECT_EQ(tp::level_within(1, 64), 16u);
  EXPECT_EQ(tp::groups_of(~std::uint64_t{0}, tp::level_within(~std::uint64_t{0}, 64)), 4u);
}
TEST(ProofTree, A_source_that_cannot_be_read_and_a_stop) {
  const model m = bytes_model(300'000, 1);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(code_of(tp::proof_tree::make(m.source(), stop.get_token())), errc::cancelled);
  const tp::source_reader broken{
      [](const void*, std::uintptr_t, std::uint64_t, byte_span) noexcept -> tp::result<void> {
        return tp::failure(errc::io, 0, {}, EIO);
      }};
  const std::uint64_t shape[]{300'000};
  const tp::tensor_view view{.name = "w", .type = dtype::u8, .shape = shape, .data = nullptr, .indirect = true};
  const auto image = tp::dynamic_image::make({&view, 1}, {}, broken);
  ASSERT_TRUE(succeeded(image));
  EXPECT_EQ(code_of(tp::proof_tree::make(image->source())), errc::io);
}

TEST(ProofTreeId, Owners_of_one_model_have_its_tree_under_one_ID_that_tells_nothing_of_the_model) {
  const tp::reference model{{1, 2}, 3, 0};
  const tp::ref_id id = tp::proof_tree_id(model);
  EXPECT_EQ(tp::proof_tree_id({{1, 2}, 3, 99}), id) << "the fingerprint is no part of it";
  for (const tp::reference& other : {tp::reference{{2, 2}, 3, 0}, {{1, 3}, 3, 0}, {{1, 2}, 4, 0}})
    EXPECT_NE(tp::proof_tree_id(other), id);
  // the first half of SHA-256 of "tpproof", nine zeros, and 1, 2, 3, 0 as words of 8 bytes
  EXPECT_EQ(std::string_view(tp::to_digits(id).data(), 32), "c97c7ff545455947cbb94ba09651cb93");
}

}  // namespace proof_tree_test
