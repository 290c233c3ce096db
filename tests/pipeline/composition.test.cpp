// Policies in any order, their defaults, the memory bound, and what models which slot.
#include <tensorpull/consumers/average/weighted_average.hpp>
#include <tensorpull/framing/capnp/capnp_framing.hpp>
#include <tensorpull/tensorpull.hpp>

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

namespace tests {
struct mlp {
  float w[4][3], b[4];
};
struct renamed_twin {
  float weight[4][3], bias[4];
};
struct encoder_decoder {
  mlp encoder, decoder;
  std::int32_t step;
};
struct only_decoder {
  mlp decoder;
};
}  // namespace tests
BOOST_HANA_ADAPT_STRUCT(tests::mlp, w, b);
BOOST_HANA_ADAPT_STRUCT(tests::renamed_twin, weight, bias);
BOOST_HANA_ADAPT_STRUCT(tests::encoder_decoder, encoder, decoder, step);
BOOST_HANA_ADAPT_STRUCT(tests::only_decoder, decoder);

namespace composition_test {

using namespace tensorpull;
using tests::mlp;

struct few : default_limits {
  static constexpr std::size_t references = 2;
};

using one = pipeline<raw_tensors<mlp>, fixed_bytes<64>, loopback, chunk_digest, few, basic_capnp_framing<few>>;
using two = pipeline<basic_capnp_framing<few>, few, chunk_digest, loopback, fixed_bytes<64>, raw_tensors<mlp>>;
static_assert(std::is_same_v<one::parts, two::parts>);
static_assert(std::is_same_v<one::downloader, two::downloader>);

using plain = pipeline<loopback, raw_tensors<mlp>, fixed_bytes<64>>;
static_assert(std::is_same_v<plain::parts::integrity, image_digest> && std::is_same_v<plain::limits, default_limits>);
static_assert(std::is_same_v<plain::parts::framing, word_framing>);
static_assert(std::is_same_v<pipeline<few, loopback, whole, tensor_list>::parts::framing, basic_word_framing<few>>,
              "the default framing keeps the limits");

static_assert(pipeline<raw_tensors<mlp>, fixed_bytes<2_MiB>, tcp>::memory.recipient <= 4096);
static_assert(pipeline<raw_tensors<mlp>, fixed_bytes<2_MiB>, tcp, chunk_and_image_digest>::memory.recipient <=
              4096 + 1536);  // a hash of the chunk, and those of the whole and of a part to go back to
static_assert(pipeline<raw_tensors<mlp>, per_tensor<2_MiB>, loopback>::memory.recipient <= 10 * 1024);  // both ends
static_assert(pipeline<raw_tensors<mlp>, fixed_bytes<2_MiB>, tcp>::memory.owner_per_recipient <=
              2048 + tcp::connection_bytes);
static_assert(pipeline<raw_tensors<mlp>, whole, tcp>::memory.slice == 64 * 1024);

// what a transport is decides what it is put together with
struct datagrams : loopback {
  static constexpr std::uint64_t max_payload_bytes = 1100;
  static constexpr bool reliable = false, ordered = false;
};
static_assert(std::is_same_v<pipeline<raw_tensors<mlp>, fit_datagram, datagrams>::chunking, fixed_bytes<1096>>);
static_assert(
    std::is_same_v<pipeline<raw_tensors<mlp>, fit_datagram, tcp>::chunking, fixed_bytes<default_chunk_bytes>>);
static_assert(pipeline<raw_tensors<mlp>, fixed_bytes<1096>, datagrams, chunk_digest>::chunking::max_chunk_bytes ==
              1096);
static_assert(tcp::reliable && tcp::ordered && !tcp::shares_memory && !tcp::encrypted &&
              tcp::identifies == identity_kind::none && loopback::shares_memory);

struct nothing {};
struct wrong_chunk : fixed_bytes<64> {
  static constexpr int max_chunk_bytes = 64;
};
struct no_digest {
  using is_integrity_policy = void;
  static constexpr bool whole = true;
};
struct endless_transport {
  using is_transport_policy = void;
};
static_assert(chunking_strategy<fixed_bytes<8>> && chunking_strategy<bytes_up_to<9>> &&
              chunking_strategy<per_tensor<1>> && chunking_strategy<whole>);
static_assert(!chunking_strategy<nothing> && !chunking_strategy<loopback> && !chunking_strategy<wrong_chunk>);
static_assert(integrity_policy<unverified> && integrity_policy<chunk_digest> && !integrity_policy<no_digest> &&
              !integrity_policy<nothing>);
static_assert(transport<tcp> && transport<tcp_on_threads> && transport<loopback> && !transport<endless_transport> &&
              !transport<nothing>);
static_assert(framing<word_framing> && framing<capnp_framing> && framing<basic_capnp_framing<few>> &&
              !framing<nothing>);
static_assert(byte_stream<posix_stream> && pollable_stream<posix_stream> && !byte_stream<nothing>);
static_assert(consumer<plain::consumer> && consumer<land> && !consumer<nothing> && !consumer<mlp>);

static_assert(tensor_policy<raw_tensors<mlp>> && tensor_policy<tensor_list> && !tensor_policy<nothing> &&
              !tensor_policy<loopback>);
static_assert(limits_policy<few> && !limits_policy<nothing> && !limits_policy<raw_tensors<mlp>>);
// a number of any integral type will do, and 0 if it means something
struct quiet_limits : default_limits {
  static constexpr int window = 1;
  static constexpr unsigned short application_references = 0;
  static constexpr std::uint64_t chunk_cap_bytes = ~std::uint64_t{0};
  static constexpr std::chrono::milliseconds busy_delay{0};
};
struct hurried_limits : default_limits {
  static constexpr std::chrono::milliseconds busy_delay{-1};
};
static_assert(limits_policy<quiet_limits> && !limits_policy<hurried_limits>);
static_assert(integrity_policy<chunk_and_image_digest> && hash<xxhash_digest> &&
              chunk_digest_kind<chunk_digest> == digest_kind::xxh3_64);
static_assert(tensor_policy<tensor_list> && chunking_strategy<whole> && integrity_policy<unverified>);
static_assert(integrity_policy<image_digest> && integrity_policy<chunk_digest>);
static_assert(framing<word_framing> && transport_for<tcp, plain::parts> && consumer<land>);
// The first requirement that is missed ends what is met.
static_assert(detail::transport_requirements<endless_transport>::met_1 &&
              !detail::transport_requirements<endless_transport>::met_2 &&
              !detail::transport_requirements<endless_transport>::met_4 &&
              !transport_for<endless_transport, plain::parts>);
static_assert(detail::integrity_requirements<no_digest>::met_2 && !detail::integrity_requirements<no_digest>::met_3 &&
              !detail::integrity_requirements<no_digest>::met_5);
static_assert(detail::chunking_requirements<wrong_chunk>::met_1 && !detail::chunking_requirements<wrong_chunk>::met_2);
static_assert(!detail::consumer_requirements<mlp>::met_1 && !detail::consumer_requirements<mlp>::met_11);
static_assert(!detail::limits_requirements<nothing>::met_1);
static_assert(std::is_empty_v<detail::consumer_checks<land>>);

template <class Net, class Model>
result<receipt> carry(const Model& source, Model& mine) {
  const auto owner = std::make_unique<typename Net::downloader>();
  const auto ref = owner->add_tensors(source, {.recipients = 1});
  if (!ref) return failure(ref.error());
  return Net::download_tensors(*owner, *ref, mine);
}

TEST(Composition, Every_order_carries_the_same) {
  const mlp source{{{1, 2, 3}, {4, 5, 6}}, {7, 8, 9, 10}};
  mlp a{}, b{};
  const auto first = carry<one>(source, a), second = carry<two>(source, b);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->outcome, outcome::completed_unverified);
  EXPECT_EQ(first->chunks, second->chunks);
  EXPECT_EQ(a.b[3], 10);
  EXPECT_EQ(b.w[1][2], 6);
}
TEST(Composition, Temporary_lambdas_hear_of_the_transfer) {
  const mlp source{{{1, 2, 3}, {4, 5, 6}}, {7, 8, 9, 10}};
  mlp mine{};
  int settled = 0, steps = 0;
  const auto owner = std::make_unique<plain::downloader>();
  const auto ref = owner->add_tensors(
      source, {.recipients = 1, .settled = [&](const settlement& s) { settled += s.expected == 1; }});
  ASSERT_TRUE(ref);
  ASSERT_TRUE(plain::download_tensors(
      *owner, *ref, mine,
      {.progress = [&](const progress_event&) { ++steps; }, .progress_interval = std::chrono::milliseconds(0)}));
  EXPECT_EQ(settled, 1);
  EXPECT_GT(steps, 0);
}
TEST(Composition, A_pull_into_a_consumer) {
  const mlp source{{{1, 2, 3}, {4, 5, 6}}, {7, 8, 9, 10}};
  mlp mine{};
  const auto owner = std::make_unique<plain::downloader>();
  const auto ref = owner->add_tensors(source, {.recipients = 1});
  ASSERT_TRUE(ref);
  plain::consumer to(mine);
  ASSERT_TRUE(plain::pull(*owner, *ref, to));
  EXPECT_EQ(mine.b[3], 10);
}
TEST(Composition, A_whole_image_above_the_default_cap_is_one_chunk) {
  const std::uint64_t extents[] = {80 << 20};
  const auto from = std::make_unique<std::byte[]>(extents[0]), to = std::make_unique<std::byte[]>(extents[0]);
  for (std::size_t i = 0; i < extents[0]; i += 4096) from[i] = static_cast<std::byte>(i >> 12);
  const tensor_view out[] = {{"w", dtype::u8, extents, from.get()}};
  const mutable_tensor_view in[] = {{"w", dtype::u8, extents, to.get()}};
  const auto source = dynamic_image::make(out);
  auto mine = dynamic_image::make(in);
  ASSERT_TRUE(source && mine);
  const auto done = carry<pipeline<tensor_list, whole, loopback>>(*source, *mine);
  ASSERT_TRUE(done) << to_string(done.error().code);
  EXPECT_EQ(done->chunks, 1u);
  EXPECT_EQ(std::memcmp(from.get(), to.get(), extents[0]), 0);
  const auto cut = carry<pipeline<tensor_list, fixed_bytes<max_payload_bytes>, loopback>>(*source, *mine);
  ASSERT_TRUE(cut) << to_string(cut.error().code);
  EXPECT_EQ(cut->chunks, 2u) << "other chunks are cut at the cap";
  const auto hashed = carry<pipeline<tensor_list, whole, loopback, chunk_and_image_digest>>(*source, *mine);
  ASSERT_FALSE(hashed);
  EXPECT_EQ(hashed.error(), errc::does_not_fit) << "what has to be hashed first stays capped";
}
TEST(Composition, Adaptive_chunks_carry_the_same) {
  const std::uint64_t extents[] = {1 << 20};
  const auto from = std::make_unique<std::byte[]>(extents[0]), to = std::make_unique<std::byte[]>(extents[0]);
  for (std::size_t i = 0; i < extents[0]; ++i) from[i] = static_cast<std::byte>(i * 7);
  const tensor_view out[] = {{"w", dtype::u8, extents, from.get()}};
  const mutable_tensor_view in[] = {{"w", dtype::u8, extents, to.get()}};
  const auto source = dynamic_image::make(out);
  auto mine = dynamic_image::make(in);
  ASSERT_TRUE(source && mine);
  const auto done = carry<pipeline<tensor_list, adaptive_bytes<64, 64_KiB>, loopback, chunk_and_image_digest>>(*source,
                                                                                                               *mine);
  ASSERT_TRUE(done) << to_string(done.error().code);
  EXPECT_EQ(std::memcmp(from.get(), to.get(), extents[0]), 0);
}
TEST(Composition, Limits_are_the_policys) {
  const auto owner = std::make_unique<one::downloader>();
  const mlp source{};
  ASSERT_TRUE(owner->add_tensors(source));
  ASSERT_TRUE(owner->add_tensors(source));
  EXPECT_EQ(owner->add_tensors(source).error(), errc::table_full);
}
TEST(Composition, Renamed_models_meet_under_the_new_names) {
  using theirs = pipeline<raw_tensors<renamed<tests::renamed_twin, from_to{"weight", "w"}, from_to{"bias", "b"}>>,
                          whole, loopback>;
  const auto owner = std::make_unique<plain::downloader>();
  const mlp source{{{1, 2, 3}}, {4}};
  const auto ref = owner->add_tensors(source);
  ASSERT_TRUE(ref);
  tests::renamed_twin mine{};
  const auto done = theirs::download_tensors(*owner, *ref, mine);
  ASSERT_TRUE(done) << to_string(done.error().code);
  EXPECT_EQ(mine.weight[0][2], 3);
  EXPECT_EQ(mine.bias[0], 4);
}
TEST(Composition, A_part_of_a_larger_model_by_name) {
  using whole_model = pipeline<raw_tensors<tests::encoder_decoder>, fixed_bytes<64>, loopback>;
  using part = pipeline<raw_tensors<tests::only_decoder>, fixed_bytes<24>, loopback>;
  const auto owner = std::make_unique<whole_model::downloader>();
  tests::encoder_decoder source{};
  source.decoder.w[3][2] = 5;
  source.decoder.b[1] = 6;
  const auto ref = owner->add_tensors(source, {.recipients = 1});
  ASSERT_TRUE(ref);
  tests::only_decoder mine{};
  std::array<std::string_view, 2> names{"decoder.b", "decoder.w"};
  const auto done = part::download_tensors(*owner, ref->id, mine, {.tensors = names});
  ASSERT_TRUE(done) << to_string(done.error().code);
  EXPECT_EQ(done->outcome, outcome::completed);
  EXPECT_EQ(done->bytes, sizeof(mlp));
  EXPECT_EQ(mine.decoder.w[3][2], 5);
  EXPECT_EQ(mine.decoder.b[1], 6);
  EXPECT_TRUE(owner->settled(*ref));

  const auto again = owner->add_tensors(source);
  const std::array<std::string_view, 2> wrong{"decoder.b", "no.such"};
  const auto refused = part::download_tensors(*owner, again->id, mine, {.tensors = wrong});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().name.view(), "no.such");
}

}  // namespace composition_test
