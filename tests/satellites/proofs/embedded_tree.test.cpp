// A small machine pulls the values of groups from the endpoint of hosts, of a model of two groups and of several; and
// what it takes for the image of a tree is what an owner publishes.
#include <tensorpull/satellites/proofs/embedded_proof.hpp>
#include <tensorpull/satellites/proofs/embedded_tree.hpp>
#include <tensorpull/satellites/proofs/proof_tree.hpp>
#include <tensorpull/satellites/proofs/signed_reference.hpp>

#include "embedded/small_pair.hpp"
#include "proved_model.hpp"

#include <tensorpull/device.hpp>

#include <cstring>
#include <deque>
#include <functional>
#include <memory>

namespace embedded_tree_test {

struct of_two {
  float w[270][64];
};
struct of_six {
  float w[1300][64];
  std::int8_t table[777];
};
/// The tree of the first: a small machine publishes it as it publishes any model.
struct tree_of_two {
  std::uint8_t values[2][32];
};

/// As much of a signed reference as a small machine has room for.
struct reference_text {
  std::uint8_t text[512];
};

}  // namespace embedded_tree_test

template <>
inline constexpr auto tensorpull::members_of<embedded_tree_test::reference_text> = tensorpull::members(
    tensorpull::member{"text", &embedded_tree_test::reference_text::text});
template <>
inline constexpr auto tensorpull::members_of<embedded_tree_test::of_two> = tensorpull::members(
    tensorpull::member{"w", &embedded_tree_test::of_two::w});
template <>
inline constexpr auto tensorpull::members_of<embedded_tree_test::tree_of_two> = tensorpull::members(
    tensorpull::member{"blake3.16", &embedded_tree_test::tree_of_two::values});
template <>
inline constexpr auto tensorpull::members_of<embedded_tree_test::of_six> = tensorpull::members(
    tensorpull::member{"w", &embedded_tree_test::of_six::w},
    tensorpull::member{"table", &embedded_tree_test::of_six::table});

namespace embedded_tree_test {

using namespace test;

struct uart {
  std::deque<std::byte>&in, &out;
  tp::io_result read(std::span<std::byte> to) noexcept {
    std::size_t n = 0;
    for (; n < to.size() && !in.empty(); in.pop_front()) to[n++] = in.front();
    return {n > 0 ? tp::io_status::ok : tp::io_status::would_block, 0, n};
  }
  tp::io_result write(std::span<const std::byte> from) noexcept {
    out.insert(out.end(), from.begin(), from.end());
    return {tp::io_status::ok, 0, from.size()};
  }
};
/// While it rests the other end goes on.
struct machine {
  using milliseconds = std::chrono::duration<std::uint32_t, std::milli>;
  inline static milliseconds time{};
  inline static generator dice{7};
  inline static std::function<void()> other;
  static milliseconds now() noexcept { return time; }
  static std::uint64_t random() noexcept { return dice(); }
  static void panic(const char*) noexcept {}
  static void idle() noexcept {
    ++time;
    other();
  }
};
template <class Model, std::uint64_t Chunk>
using net_of =
    tp::pipeline<tp::small_machine<machine>, tp::serial_over<uart>, tp::raw_tensors<Model>, tp::fixed_bytes<Chunk>>;

tp::proof_tree tree_of(const model& m) { return std::move(*tp::proof_tree::make(m.source())); }
void publish(small_pair& pair, const tp::source_view& image) {
  ASSERT_TRUE(pair.left->references.publish(image, *tp::image_version<tp::xxhash_digest>(image), true, {1, 2}, 0));
}

template <class Landing, class Net>
tp::result<tp::receipt> pull(small_pair& pair, Landing& to) {
  typename Net::template recipient<Landing> recipient(to, net_pull, 77);
  return pair.pull(recipient);
}

/// Pulls the tree from an owner of `published`, and then the model as it is proved by that.
template <class Model, unsigned Level, std::uint64_t Chunk>
void pulls(const small_link& link = {}) {
  SCOPED_TRACE(testing::Message() << Level << ' ' << Chunk);
  using net_type = net_of<Model, Chunk>;
  using landing = tp::tree_landing<typename net_type::image, Level>;
  using proved = tp::proved_landing<typename net_type::consumer, Level>;
  const model right = fill(list_of<Model>(), 1), other = fill(list_of<Model>(), 2);
  const auto tree = tree_of(right), wrong = tree_of(other);

  const auto values = std::make_unique<typename landing::values>();
  landing to(*values);
  small_pair pair(link, Level);
  publish(pair, tree.image().source());
  ASSERT_TRUE((confirmed(pull<landing, net_type>(pair, to))));
  EXPECT_TRUE(proved::is_proof(*values, tree.root()));
  EXPECT_FALSE(proved::is_proof(*values, wrong.root()));

  const auto memory = std::make_unique<Model>();
  typename net_type::consumer model_to(*memory);
  proved checked(model_to, *values);
  small_pair honest;
  publish(honest, right.source());
  ASSERT_TRUE((confirmed(pull<proved, net_type>(honest, checked))));
  EXPECT_EQ(data_of(*memory), data_of(right));

  // the tree of another model is no proof, whatever its digest is
  small_pair liar;
  publish(liar, wrong.image().source());
  ASSERT_TRUE((confirmed(pull<landing, net_type>(liar, to))));
  EXPECT_FALSE(proved::is_proof(*values, tree.root()));
}
TEST(EmbeddedTree, The_values_of_each_level_are_pulled_and_prove_the_model) {
  pulls<of_two, 16, 512>();
  pulls<of_two, 16, 40>();
  pulls<of_six, 16, 512>();
  pulls<of_six, 16, 40>({640, 0.05, 0.05, 3, 20});
  pulls<of_six, 16, 8>();
  pulls<of_six, 17, 2048>({2200});
  pulls<of_six, 17, 40>();
  pulls<of_six, 18, 24>();
}
/// In the words of every pipeline, and as a program has them. True: `model` has landed.
bool pull_in_groups(uart& over, const tp::proved_reference& known, of_two& model) {
  using namespace tensorpull;
  using net = net_of<of_two, 256>;
  tree_landing<net::image>::values values;
  tree_landing<net::image> tree(values);
  const auto pulled = net::pull(over, known.tree, tree);
  using proved = proved_landing<net::consumer, 16>;
  if (!pulled || !proved::is_proof(values, known.root)) return false;
  net::consumer to(model);
  proved into(to, values);
  return net::pull(over, known.model, into).has_value();
}
/// The same for a machine that has a key and nothing else: whoever is at the line has the reference, too.
bool pull_signed(uart& over, std::span<const tp::trusted_key> keys, of_two& model) {
  using namespace tensorpull;
  reference_text arrived;
  if (!net_of<reference_text, 256>::pull(over, reference{{7, 7}, 0, 0}, arrived)) return false;
  std::string_view text(reinterpret_cast<const char*>(arrived.text), sizeof arrived.text);
  text.remove_suffix(text.size() - (text.rfind('\n') + 1));
  detail::by_openssl verifier;
  const auto known = verify_reference(text, keys, {.least_round = 3, .now = 1'900'000'000}, verifier);
  return known && pull_in_groups(over, known->of, model);
}
TEST(EmbeddedTree, With_a_key_alone_a_program_pulls_the_reference_the_tree_and_the_model_over_one_line) {
  // of RFC 8032, 7.1, test 1
  const auto key = tp::signing_key::read(
      {.text = std::string_view("-----BEGIN PRIVATE KEY-----\n"
                                "MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n"
                                "-----END PRIVATE KEY-----\n")});
  ASSERT_TRUE(key);
  const tp::trusted_key ours = *tp::parse_trusted_key(
                            "hospitals MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="),
                        another{"hospitals", {}, false};
  const model right = fill(list_of<of_two>(), 1);
  const auto proves = tree_of(right);
  const auto source = std::make_unique<of_two>();
  enum {
    nobody,
    of_the_key,
    about_the_round,
    about_the_root,
    about_the_tree,
    about_the_model
  };
  for (int lie = nobody; lie <= about_the_model; ++lie) {
    SCOPED_TRACE(lie);
    tp::embedded_image<of_two>::write(*source, 0, data_of(right));
    if (lie == about_the_model) source->w[200][5] += 1;
    tree_of_two values;
    std::memcpy(values.values, proves.image().source().address(0), sizeof values);
    if (lie == about_the_tree) values.values[1][31] ^= 1;

    std::deque<std::byte> there, back;
    uart here{back, there}, far{there, back};
    net_of<of_two, 256>::downloader of_model(far);
    net_of<tree_of_two, 256>::downloader of_tree(far);
    net_of<reference_text, 256>::downloader of_text(far);
    const auto ref = of_model.add_tensors(*source), tree = of_tree.add_tensors(values);
    ASSERT_TRUE(ref && tree);
    tp::reference_claims claims{
        {*ref, *tree, proves.root(), right.schema().image_bytes}, "hospitals", 3, 2'000'000'000, ""};
    if (lie == about_the_round) claims.round = 2;
    const auto text = tp::sign_reference(claims, *key);
    reference_text published{};
    ASSERT_TRUE(text && text->size() <= sizeof published.text);
    std::memcpy(published.text, text->data(), text->size());
    if (lie == about_the_root) published.text[text->find("root ") + 5] ^= 1;
    const auto first = of_text.add_tensors(published, {.id = {7, 7}});
    ASSERT_TRUE(first);
    machine::other = [&] {
      if (!of_text.settled(*first)) (void)of_text.step();
      else if (!of_tree.settled(*tree)) (void)of_tree.step();
      else (void)of_model.step();
    };
    const auto target = std::make_unique<of_two>();
    EXPECT_EQ(pull_signed(here, {lie == of_the_key ? &another : &ours, 1}, *target), lie == nobody);
    if (lie == nobody) {
      EXPECT_EQ(data_of(*target), data_of(right));
    } else if (lie != about_the_model) {
      EXPECT_EQ(data_of(*target), data_of(of_two{})) << "nothing of the model is asked for";
    }
  }
  machine::other = nullptr;
}
TEST(EmbeddedTree, The_tree_of_a_model_of_another_length_is_refused_before_it_lands) {
  using net_type = net_of<of_six, 512>;
  using landing = tp::tree_landing<net_type::image, 16>;
  for (const std::uint64_t bytes : {66'000u, 460'000u}) {
    const model other = test::proved::bytes_model(bytes, 1);
    const auto tree = tree_of(other);
    landing::values values{};
    landing to(values);
    small_pair pair;
    publish(pair, tree.image().source());
    EXPECT_EQ(code_of((pull<landing, net_type>(pair, to))), errc::schema_mismatch);
    EXPECT_EQ(values, landing::values{});
  }
  // and so is a model that is published under the reference of the tree
  const model other = fill(list_of<of_two>(), 1);
  landing::values values{};
  landing to(values);
  small_pair pair;
  publish(pair, other.source());
  EXPECT_EQ(code_of((pull<landing, net_type>(pair, to))), errc::schema_mismatch);
}

template <std::uint32_t Bytes>
void has_the_image_of_its_owner() {
  SCOPED_TRACE(Bytes);
  const model nearly = test::proved::bytes_model(Bytes - 100, 1);
  const model m = test::proved::bytes_model(Bytes - nearly.schema().header_bytes, 1);
  ASSERT_EQ(m.schema().image_bytes, Bytes) << "a header of another length";
  const auto tree = tree_of(m);
  const auto& published = tree.image().schema();
  using image = tp::embedded_tree_image<Bytes>;
  EXPECT_EQ(image::tensor_count, published.tensor_count);
  EXPECT_EQ(image::image_bytes, published.image_bytes);
  EXPECT_EQ(image::fingerprint, published.fingerprint);
  byte_vector theirs(static_cast<std::size_t>(published.header_bytes));
  tp::write_header(published, 0, theirs);
  EXPECT_TRUE(std::equal(theirs.begin(), theirs.end(), image::header.begin(), image::header.end()));
}
TEST(EmbeddedTree, A_tree_of_each_length_has_the_image_that_its_owner_publishes) {
  has_the_image_of_its_owner<0x1'0001>();
  has_the_image_of_its_owner<0x2'0000>();
  has_the_image_of_its_owner<0x2'0001>();
  has_the_image_of_its_owner<0x3'0000>();
  has_the_image_of_its_owner<0x4'0000>();
  has_the_image_of_its_owner<0x4'0001>();
  has_the_image_of_its_owner<0x10'0000>();
  has_the_image_of_its_owner<0x10'0001>();
  has_the_image_of_its_owner<0x11'1111>();
}

}  // namespace embedded_tree_test
