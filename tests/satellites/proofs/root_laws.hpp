// What a root changes on every link on which somebody else can answer (.github/SECURITY.md): the same lies that a
// digest finds at the end (Laws, Other_bytes_never_complete_...) are found in their group.
#pragma once

#include "transports/sample_models.hpp"

#include <tensorpull/satellites/proofs/proved_pull.hpp>

#include <algorithm>
#include <optional>
#include <type_traits>
#include <vector>

namespace test {

/// The values of groups of 64 KiB.
inline std::vector<tp::blake3_value> finest_values(const tp::proof_tree& tree) {
  std::vector<tp::blake3_value> all(static_cast<std::size_t>(tp::groups_of(tree.image_bytes(), 16)));
  const auto from = tree.image().source();
  for (std::size_t i = 0; i < from.schema->tensor_count; ++i)
    if (from.schema->tensors[i].name == tp::level_name(16).view())
      std::memcpy(all.data(), from.address(i), all.size() * sizeof all[0]);
  return all;
}

/// A Room has `net<Model>`, a pipeline; `open<Model>()`, an owner at a place of its own, and `where()`, how a recipient
/// reaches it; optionally `owning<Model>`, the owner's pipeline, `at(reference)`, if each publication has an address of
/// its own, and `available()`.
///
/// One owner of a model and of its tree, at a place of its own.
template <class Room, class Model>
struct owner_of_both {
  using downloader = typename decltype([] {
    if constexpr (requires { typename Room::template owning<Model>; })
      return std::type_identity<typename Room::template owning<Model>::downloader>();
    else return std::type_identity<typename Room::template net<Model>::downloader>();
  }())::type;

  /// `as`: what it claims to have.
  owner_of_both(const Model& model, const tp::proof_tree& tree, const tp::proved_reference* as = nullptr)
      : owner(*room.template open<Model>()) {
    tp::publish_options how;
    if (as != nullptr) how.id = as->model.id, how.version = as->model.version;
    ref.model = *owner.add_tensors(model, how);
    if (as != nullptr) how.id = as->tree.id, how.version = as->tree.version;
    ref.tree = *owner.add_image(tree.image().source(), how);
    ref.root = tree.root();  // of what is right, also with a liar
    ref.image_bytes = tree.image_bytes();
    server.emplace(owner);
  }

  Room room;
  downloader owner;
  tp::proved_reference ref;
  std::optional<serving> server;
};

template <class Room>
struct Roots : testing::Test {
  static constexpr std::uint64_t group = 64_KiB, header = tp::raw_tensors<mlp>::schema().header_bytes;
  using net = typename Room::template net<mlp>;
  using owner = owner_of_both<Room, mlp>;

  void SetUp() override {
    if constexpr (requires { Room::available(); })
      if (!Room::available()) GTEST_SKIP() << "this machine has not what the transport needs";
  }
  /// The model with another byte there.
  static std::unique_ptr<mlp> changed_at(std::uint64_t at) {
    auto m = random_model<mlp>(1);
    const tp::destination_view to = tp::raw_tensors<mlp>::destination(*m);
    for (std::size_t i = 0; i < to.schema->tensor_count; ++i)
      if (const auto& t = to.schema->tensors[i]; at - header >= t.begin && at - header < t.end)
        to.address(i)[at - header - t.begin] ^= std::byte{1};
    return m;
  }
  /// Nothing has landed from there on.
  void expect_untouched(std::uint64_t from) {
    const tp::destination_view to = tp::raw_tensors<mlp>::destination(*mine);
    for (std::size_t i = 0; i < to.schema->tensor_count; ++i) {
      const auto& t = to.schema->tensors[i];
      for (std::uint64_t b = std::max(from - header, t.begin); b < t.end; ++b)
        ASSERT_EQ(to.address(i)[b - t.begin], std::byte{0x5a});
    }
  }
  /// The model from one owner after another; `named`: those that have lied.
  tp::result<tp::receipt> pull(const std::vector<owner*>& from, std::uint64_t& named) {
    tp::land to(tp::raw_tensors<mlp>::destination(*mine));
    const tp::proved_reference& of = from.back()->ref;
    const tp::pull_options options{.retry = {.retries = 0}};
    if constexpr (requires { from[0]->room.at(of.model); }) {
      // each publication has an address of its own, so the values were fetched before
      const auto by = tp::proof::make(of.root, of.image_bytes, 16, finest_values(tree));
      if (!by) return tp::failure(by.error());
      tp::proved checked(to, *by);
      tp::result<tp::receipt> done = tp::failure(errc::invalid_argument);
      for (std::size_t i = 0; i < from.size() && !done; ++i) {
        checked.go_on(0, i + 1 == from.size());
        done = net::pull(from[i]->room.at(of.model), of.model, checked, options);
        if (code_of(done) == errc::digest_mismatch && !checked.refused()) named |= std::uint64_t{1} << i;
      }
      return done;
    } else {
      std::vector<std::decay_t<decltype(from[0]->room.where())>> places;
      for (owner* o : from) places.push_back(o->room.where());
      const auto done = tp::pull_proved<net>(std::span(places), of, to, {.most_bytes = 64 * 1024, .wrong = &named},
                                             options);
      return done ? tp::result<tp::receipt>(done->last) : tp::failure(done.error());
    }
  }

  const std::unique_ptr<mlp> right = random_model<mlp>(1), mine = blank<mlp>();
  const tp::proof_tree tree = *tp::proof_tree::make(tp::raw_tensors<mlp>::source(*right));
};
TYPED_TEST_SUITE_P(Roots);

TYPED_TEST_P(Roots, C1_other_bytes_land_no_further_than_their_group_and_the_liar_is_named) {
  constexpr std::uint64_t each = TestFixture::group;
  owner_of_both<TypeParam, mlp> honest(*this->right, this->tree);
  for (const std::uint64_t at : {each + 100, 3 * each + 5}) {
    const auto lie = this->changed_at(at);
    ASSERT_FALSE(same(*lie, *this->right));
    owner_of_both<TypeParam, mlp> liar(*lie, this->tree, &honest.ref);
    std::memset(static_cast<void*>(this->mine.get()), 0x5a, sizeof(mlp));
    std::uint64_t named = 0;
    EXPECT_EQ(code_of(this->pull({&liar}, named)), errc::digest_mismatch);
    EXPECT_EQ(named, 1u);
    this->expect_untouched((at / each + 1) * each);
    named = 0;
    ASSERT_TRUE(succeeded(this->pull({&liar, &honest}, named)));
    EXPECT_EQ(named, 1u);
    EXPECT_TRUE(same(*this->mine, *this->right));
  }
}
REGISTER_TYPED_TEST_SUITE_P(Roots, C1_other_bytes_land_no_further_than_their_group_and_the_liar_is_named);

}  // namespace test
