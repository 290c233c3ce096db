// The constants of a model that is listed member by member: the same image as hosts make of the same tensors.
#include "embedded/small_pair.hpp"

#include <tensorpull/tensors/structs/raw.hpp>

#include <complex>

namespace members_test {

using namespace test;

struct inner {
  float w[2][3];
  std::int64_t n;
};
/// The same struct, adapted and listed. The listed one has the adapted `inner` in it.
template <bool Listed>
struct either {
  std::array<inner, 12> layers;
  inner last;
  std::complex<float> z[2];
  tp::float16 h[3];
  tp::float8_e4m3 e[5];
  bool b[2][2];
  std::uint8_t u;
  std::array<std::array<double, 2>, 0> none;
};
using outer = either<false>;
using listed = either<true>;
/// And the other way round: a listed struct in one that is adapted.
struct around {
  listed parts[2];
  float bias;
};

}  // namespace members_test

BOOST_HANA_ADAPT_STRUCT(members_test::inner, w, n);
BOOST_HANA_ADAPT_STRUCT(members_test::outer, layers, last, z, h, e, b, u, none);
BOOST_HANA_ADAPT_STRUCT(members_test::around, parts, bias);
// in another order than the struct's
template <>
inline constexpr auto tensorpull::members_of<members_test::listed> = tensorpull::members(
    tensorpull::member{"none", &members_test::listed::none}, tensorpull::member{"b", &members_test::listed::b},
    tensorpull::member{"u", &members_test::listed::u}, tensorpull::member{"last", &members_test::listed::last},
    tensorpull::member{"layers", &members_test::listed::layers}, tensorpull::member{"h", &members_test::listed::h},
    tensorpull::member{"e", &members_test::listed::e}, tensorpull::member{"z", &members_test::listed::z});

namespace members_test {

using small = tp::embedded_image<outer>;
static_assert(small::tensor_count == 2 * 13 + 6);
static_assert(small::fingerprint == tp::raw_tensors<listed>::schema().fingerprint);
static_assert(small::fingerprint == tp::embedded_image<listed>::fingerprint);
static_assert(tp::raw_tensors<around>::schema().tensor_count == 2 * small::tensor_count + 1);
static_assert(tp::embedded_image<tp::renamed<listed, tp::from_to{"last", "head"}>>::fingerprint ==
              tp::raw_tensors<tp::renamed<outer, tp::from_to{"last", "head"}>>::schema().fingerprint);
static_assert(small::data_bytes == 13 * 24 + 13 * 8 + 16 + 6 + 5 + 4 + 1);
static_assert(small::schema.of_members);

TEST(EmbeddedMembers, The_header_is_that_of_the_same_struct_with_a_list) {
  std::array<std::byte, small::header_bytes> other;
  ASSERT_EQ(tp::write_header(tp::raw_tensors<listed>::schema(), 0, other), other.size());
  EXPECT_EQ(small::header, other);
  EXPECT_EQ(tp::embedded_image<listed>::header, other);
}
TEST(EmbeddedMembers, A_listed_struct_in_an_adapted_one_is_a_model_of_hosts_and_of_small_machines) {
  around model{};
  model.parts[1].layers[3].n = 77;
  const auto& schema = tp::raw_tensors<around>::schema();
  std::size_t i = 0;
  while (i < schema.tensor_count && schema.tensors[i].name != "parts.1.layers.3.n") ++i;
  ASSERT_LT(i, schema.tensor_count);
  EXPECT_EQ(tp::raw_tensors<around>::source(model).address(i),
            reinterpret_cast<const std::byte*>(&model.parts[1].layers[3].n));
  byte_vector data(tp::embedded_image<around>::data_bytes);
  tp::embedded_image<around>::read(model, 0, data);
  std::int64_t there = 0;
  std::memcpy(&there, data.data() + schema.tensors[i].begin, 8);
  EXPECT_EQ(there, 77);
}
TEST(EmbeddedMembers, Any_range_is_written_and_read_where_hosts_have_it) {
  generator random(1);
  model source = fill(list_of<outer>(), 3);
  const auto data = data_of(source);
  for (int i = 0; i < 300; ++i) {
    outer target;
    std::memset(static_cast<void*>(&target), 0x5a, sizeof target);
    const auto before = data_of(target);
    const auto at = static_cast<std::uint32_t>(random() % (data.size() + 1)),
               n = static_cast<std::uint32_t>(random() % (data.size() + 1 - at));
    ASSERT_TRUE(small::write(target, at, std::span(data).subspan(at, n)));
    const auto after = data_of(target);
    ASSERT_TRUE(std::equal(after.begin(), after.begin() + at, before.begin()));
    ASSERT_TRUE(std::equal(after.begin() + at, after.begin() + at + n, data.begin() + at));
    ASSERT_TRUE(std::equal(after.begin() + at + n, after.end(), before.begin() + at + n));
    byte_vector part(n);
    small::read(target, at, part);
    ASSERT_TRUE(std::equal(part.begin(), part.end(), data.begin() + at));
  }
  outer target{};
  ASSERT_TRUE(small::write(target, 0, data));
  std::array<const_byte_span, 64> pieces;
  std::array<std::byte, 8> slice;
  byte_vector host;
  while (host.size() < data.size()) {
    const auto g = tp::gather(tp::raw_tensors<outer>::source(target), small::header_bytes + host.size(),
                              data.size() - host.size(), pieces, slice);
    for (std::size_t i = 0; i < g.pieces; ++i) host.insert(host.end(), pieces[i].begin(), pieces[i].end());
  }
  EXPECT_EQ(host, data);
}
TEST(EmbeddedMembers, A_byte_that_is_no_bool_is_said_and_is_none_in_memory) {
  outer target{};
  byte_vector data(small::data_bytes, std::byte{2});
  EXPECT_FALSE(small::write(target, 0, data));
  unsigned char held[4];
  std::memcpy(held, target.b, 4);
  for (const unsigned char h : held) EXPECT_EQ(h, 1);
  EXPECT_EQ(target.u, 2) << "other bytes are anything";
  EXPECT_TRUE(small::write(target, 0, std::span(data).first(small::data_bytes - 4)));
}
TEST(EmbeddedMembers, Every_byte_of_the_header_belongs_to_the_tensor_whose_text_it_is) {
  const auto& schema = small::schema;
  for (std::size_t i = 0; i < schema.tensor_count; ++i) {
    const std::uint32_t begin = schema.tensors[i].text_at,
                        length = static_cast<std::uint32_t>(tp::detail::entry_text_length(schema.tensors[i]));
    EXPECT_EQ(small::tensor_of_header(begin), i);
    EXPECT_EQ(small::tensor_of_header(begin + length - 1), i);
    EXPECT_EQ(small::tensor_of_header(begin + length), i + 1) << "the comma, or the brace at the end";
  }
  EXPECT_EQ(small::tensor_of_header(8), 0u);
  EXPECT_EQ(small::tensor_of_header(small::header_bytes - 1), schema.tensor_count);
}

}  // namespace members_test
