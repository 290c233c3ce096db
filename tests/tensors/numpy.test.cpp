#include <tensorpull/tensors/numpy/numpy.hpp>

#include <tensorpull/tensorpull.hpp>

#include "allocation_counter.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

namespace numpy_test {

using namespace tensorpull;

constexpr std::uint64_t two_by_three[] = {2, 3};

std::vector<std::byte> data_of(const dynamic_image& image) {
  const image_schema& schema = image.schema();
  std::vector<std::byte> bytes, slice(13);
  std::span<const std::byte> out[4];
  for (std::uint64_t at = schema.header_bytes; at < schema.image_bytes;) {
    const gathered got = gather(image.source(), at, schema.image_bytes - at, out, slice);
    for (std::size_t i = 0; i < got.pieces; ++i) bytes.insert(bytes.end(), out[i].begin(), out[i].end());
    at += got.bytes;
  }
  return bytes;
}
template <class T>
std::vector<T> values_of(const numpy_array& array) {
  const auto image = numpy_tensors::make(std::span(&array, 1));
  if (!image) return {};
  const auto bytes = data_of(*image);
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}
template <class T>
const std::byte* raw(const T* data) {
  return reinterpret_cast<const std::byte*>(data);
}
error refusal(const numpy_array& array) {
  const auto image = numpy_tensors::make(std::span(&array, 1));
  return image ? error{} : image.error();
}
error refusal(const mutable_numpy_array& array) {
  const auto image = numpy_tensors::make(std::span(&array, 1));
  return image ? error{} : image.error();
}

TEST(NumpyTensors, Every_type_that_both_sides_have) {
  const std::pair<const char*, dtype> known[] = {{"|b1", dtype::boolean},
                                                 {"?", dtype::boolean},
                                                 {"|u1", dtype::u8},
                                                 {"|i1", dtype::i8},
                                                 {"<u2", dtype::u16},
                                                 {"<i2", dtype::i16},
                                                 {"<f2", dtype::f16},
                                                 {"<u4", dtype::u32},
                                                 {"<i4", dtype::i32},
                                                 {"<f4", dtype::f32},
                                                 {"<u8", dtype::u64},
                                                 {"<i8", dtype::i64},
                                                 {"<f8", dtype::f64},
                                                 {"<c8", dtype::c64},
                                                 {"=f4", dtype::f32},
                                                 {"f", dtype::f32},
                                                 {"int64", dtype::i64},
                                                 {"bfloat16", dtype::bf16},
                                                 {"float8_e4m3fn", dtype::f8_e4m3}};
  for (const auto& [descr, type] : known) {
    const auto format = parse_numpy_descr(descr);
    ASSERT_TRUE(format) << descr;
    EXPECT_EQ(format->type, type) << descr;
    EXPECT_EQ(format->swap_bytes, 0) << descr;
    EXPECT_EQ(parse_numpy_descr(numpy_name(type))->type, type) << "and back";
  }
  EXPECT_EQ(parse_numpy_descr(">f8")->swap_bytes, 8);
  EXPECT_EQ(parse_numpy_descr(">c8")->swap_bytes, 4);
  EXPECT_EQ(parse_numpy_descr(">u1")->swap_bytes, 0);
  EXPECT_EQ(numpy_name(dtype::f4), "");
}

TEST(NumpyTensors, N1_OtherTypesAreRefusedWithTheArraysName) {
  const float data[6] = {};
  for (const char* descr : {"|O", "|S3", "<U2", "<M8[ns]", "<m8", "<f16", "<c16", "|V4", "float128", "l", "", "<",
                            "<<f4", "f4,f4", "(2,)f4"}) {
    const error why = refusal(numpy_array{"layers.0", descr, two_by_three, raw(data)});
    EXPECT_EQ(why.code, errc::unsupported_dtype) << descr;
    EXPECT_EQ(why.name.view(), "layers.0");
  }
}

TEST(NumpyTensors, Orders_strides_and_byte_orders_give_the_logical_values) {
  const float c[6] = {1, 2, 3, 4, 5, 6}, fortran[6] = {1, 4, 2, 5, 3, 6};
  const std::vector<float> wanted(c, c + 6);
  float swapped[6], reversed[12] = {0, 6, 0, 5, 0, 4, 0, 3, 0, 2, 0, 1};
  std::memcpy(swapped, fortran, sizeof swapped);
  for (float& f : swapped) std::reverse(reinterpret_cast<char*>(&f), reinterpret_cast<char*>(&f) + 4);
  const std::int64_t every_second[] = {-24, -8}, none[] = {0, 0};
  EXPECT_EQ(values_of<float>({"w", "<f4", two_by_three, raw(c)}), wanted);
  EXPECT_EQ(values_of<float>({"w", "<f4", two_by_three, raw(fortran), {}, numpy_order::fortran}), wanted);
  EXPECT_EQ(values_of<float>({"w", ">f4", two_by_three, raw(swapped), {}, numpy_order::fortran}), wanted);
  EXPECT_EQ(values_of<float>({"w", "<f4", two_by_three, raw(reversed + 11), every_second}), wanted);
  EXPECT_EQ(values_of<float>({"w", "<f4", two_by_three, raw(c + 4), none}), std::vector<float>(6, 5.0f)) << "broadcast";
  EXPECT_EQ(values_of<float>({"w", "<f4", {}, raw(c + 2), {}, numpy_order::fortran}), std::vector<float>{3})
      << "a scalar";
  const std::uint64_t empty[] = {3, 0};
  EXPECT_EQ(refusal(numpy_array{"w", "<f4", empty, nullptr, {}, numpy_order::fortran}).code, errc{})
      << "nothing needs no address";
  const std::uint64_t too_many[] = {1ull << 33, 1ull << 33};
  EXPECT_EQ(refusal(numpy_array{"w", "<f4", too_many, raw(c), {}, numpy_order::fortran}).code, errc::size_overflow);
}

TEST(NumpyTensors, Bits_of_types_that_numpy_lacks) {
  const std::uint16_t bits[6] = {0x3f80, 1, 2, 3, 4, 5};
  numpy_array array{"w", "<u2", two_by_three, raw(bits)};
  array.bits_of = dtype::bf16;
  const auto image = numpy_tensors::make(std::span(&array, 1));
  ASSERT_TRUE(image);
  EXPECT_EQ(image->schema().tensors[0].type, dtype::bf16);
  EXPECT_EQ(values_of<std::uint16_t>(array), std::vector<std::uint16_t>(bits, bits + 6));
  for (const char* descr : {"|V2", "<V2"}) {
    array.descr = descr;
    EXPECT_TRUE(numpy_tensors::make(std::span(&array, 1))) << descr;
  }
  for (const char* descr : {"<u4", "<f2", "|u1", "|V1"}) {
    array.descr = descr;
    EXPECT_EQ(refusal(array).code, errc::unsupported_dtype) << descr << " has not the bits of a bfloat16";
  }
  array.descr = "|u1";
  array.bits_of = dtype::f8_e4m3;
  EXPECT_EQ(refusal(array).code, errc{});
  array.bits_of = dtype::f4;
  EXPECT_EQ(refusal(array).code, errc::unsupported_dtype) << "two to the byte: the shape would be another";
}

TEST(NumpyTensors, Destinations_are_contiguous_and_native) {
  float data[6] = {};
  const auto at = reinterpret_cast<std::byte*>(data);
  const std::int64_t strides[] = {12, 4}, transposed[] = {4, 8};
  EXPECT_EQ(refusal(mutable_numpy_array{"w", "<f4", two_by_three, at}).code, errc{});
  EXPECT_EQ(refusal(mutable_numpy_array{"w", "<f4", two_by_three, at, strides}).code, errc{});
  for (const mutable_numpy_array& array :
       {mutable_numpy_array{"w", ">f4", two_by_three, at},
        mutable_numpy_array{"w", "<f4", two_by_three, at, transposed},
        mutable_numpy_array{"w", "<f4", two_by_three, at, {}, numpy_order::fortran}}) {
    EXPECT_EQ(refusal(array).code, errc::unsupported_layout);
    EXPECT_EQ(refusal(array).name.view(), "w");
  }
  const std::uint64_t column[] = {6, 1}, empty[] = {2, 0, 3};
  EXPECT_EQ(refusal(mutable_numpy_array{"w", "<f4", column, at, {}, numpy_order::fortran}).code, errc{})
      << "both orders are one here";
  EXPECT_EQ(refusal(mutable_numpy_array{"w", "<f4", empty, at, {}, numpy_order::fortran}).code, errc{});
}

TEST(NumpyTensors, Arrays_arrive_in_others) {
  using net = pipeline<numpy_tensors, fixed_bytes<64_KiB>, loopback>;
  const std::uint64_t shape[] = {300, 200}, flags[] = {5};
  std::vector<std::uint32_t> swapped(60'000), mine(60'000), wanted(60'000);
  for (std::uint32_t i = 0; i < 60'000; ++i) {
    swapped[i] = __builtin_bswap32(i * 2654435761u);
    wanted[(i % 300) * 200 + i / 300] = i * 2654435761u;  // the file's first index changes fastest
  }
  const bool on[5] = {true, false, true, true, false};
  bool got[5] = {};
  const numpy_array sources[] = {{"w", ">u4", shape, raw(swapped.data()), {}, numpy_order::fortran},
                                 {"flags", "|b1", flags, raw(on)}};
  const mutable_numpy_array targets[] = {{"flags", "?", flags, reinterpret_cast<std::byte*>(got)},
                                         {"w", "uint32", shape, reinterpret_cast<std::byte*>(mine.data())}};
  const auto source = numpy_tensors::make(sources);
  auto target = numpy_tensors::make(targets);
  ASSERT_TRUE(source && target);

  const auto owner = std::make_unique<net::downloader>();
  const auto ref = owner->add_tensors(*source);
  ASSERT_TRUE(ref);
  const auto done = net::download_tensors(*owner, *ref, *target);
  ASSERT_TRUE(done) << to_string(done.error().code);
  EXPECT_EQ(mine, wanted);
  EXPECT_TRUE(std::equal(on, on + 5, got));
}

TEST(NumpyTensors, Gathering_allocates_nothing) {
  std::vector<double> data(50'000);
  const std::uint64_t shape[] = {250, 200};
  const numpy_array array{"w", ">f8", shape, raw(data.data()), {}, numpy_order::fortran};
  const auto image = numpy_tensors::make(std::span(&array, 1));
  ASSERT_TRUE(image);
  std::vector<std::byte> slice(64 * 1024);
  std::span<const std::byte> out[4];
  const test::allocation_watch watch;
  for (std::uint64_t at = 0; at < image->schema().image_bytes;)
    at += gather(image->source(), at, image->schema().image_bytes - at, out, slice).bytes;
  EXPECT_EQ(watch.count(), 0u);
}

}  // namespace numpy_test
