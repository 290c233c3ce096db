#include <tensorpull/satellites/numpy_files/numpy_file.hpp>

#include <tensorpull/tensorpull.hpp>

#include "allocation_counter.hpp"
#include "support/own_folder.hpp"
#include "support/results.hpp"
#include "zip_archive.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace numpy_file_test {

using namespace test;
namespace fs = std::filesystem;
using test::npy;
using tp::operator""_KiB;

class NumpyFile : public testing::Test {
 protected:
  std::string write(const std::string& name, std::string_view content) {
    const auto path = (directory / name).string();
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  tp::result<tp::numpy_file> open(std::string_view content, const tp::numpy_file_options& options = {}) {
    return tp::numpy_file::open(write("file", content), options);
  }
  tp::error refusal(std::string_view content, const tp::numpy_file_options& options = {}) {
    const auto file = open(content, options);
    return file ? tp::error{} : file.error();
  }
  static std::string bytes_of(const tp::numpy_file& file, std::string_view name) {
    const tp::image_schema& schema = file.image().schema();
    for (const tp::tensor_entry& entry : schema.entries()) {
      if (entry.name != name) continue;
      std::string bytes;
      byte_vector slice(101);
      const_byte_span out[2];
      while (bytes.size() < entry.size_bytes()) {
        const auto got = tp::gather(file.image().source(), schema.header_bytes + entry.begin + bytes.size(),
                                    entry.size_bytes() - bytes.size(), out, slice);
        if (got.bytes == 0) return "failed";
        for (std::size_t i = 0; i < got.pieces; ++i)
          bytes.append(reinterpret_cast<const char*>(out[i].data()), out[i].size());
      }
      return bytes;
    }
    return "no tensor of that name";
  }

  test::own_folder folder;
  fs::path directory = folder.path();
};

const std::string six = test::little(1, 2) + test::little(2, 2) + test::little(3, 2) + test::little(4, 2) +
                        test::little(5, 2) + test::little(6, 2);

TEST_F(NumpyFile, One_array_is_named_after_its_file) {
  const auto path = write("weights.npy", npy("<i2", "(2, 3)", false, six));
  auto file = tp::numpy_file::open(path);
  ASSERT_TRUE(file);
  EXPECT_EQ(bytes_of(*file, "weights"), six);
  file = tp::numpy_file::open(path, {.name = "layers.0.w"});
  ASSERT_TRUE(file);
  EXPECT_EQ(bytes_of(*file, "layers.0.w"), six);
}

TEST_F(NumpyFile, Fortran_and_big_endian_files_have_the_logical_values) {
  std::string file_order;
  for (const int value : {1, 4, 2, 5, 3, 6}) file_order += std::string{'\0', static_cast<char>(value)};
  const auto file = open(
      test::zip({{"a.npy", npy(">i2", "(2, 3)", true, file_order)}, {"b", npy("<i2", "(6,)", true, six)}}));
  ASSERT_TRUE(file);
  EXPECT_EQ(bytes_of(*file, "a"), six);
  EXPECT_EQ(bytes_of(*file, "b"), six) << "a name without .npy is the whole name";
}

TEST_F(NumpyFile, N1_TypesWithoutDtypeAreRefusedByName) {
  for (const char* descr : {"|O", "|S3", "<U2", "<M8[ns]", "<f16", "<c16", "|V2"}) {
    EXPECT_EQ(refusal(npy(descr, "(0,)", false, "")).code, tp::errc::unsupported_dtype) << descr;
    const auto why = refusal(
        test::zip({{"fine.npy", npy("<i2", "(6,)", false, six)}, {"odd.npy", npy(descr, "(0,)", false, "")}}));
    EXPECT_EQ(why.code, tp::errc::unsupported_dtype);
    EXPECT_EQ(why.name.view(), "odd");
  }
  EXPECT_EQ(refusal(npy("{'descr': [('a', '<i4'), ('b', '>f8')], 'fortran_order': False, 'shape': (1,), }", six)).code,
            tp::errc::unsupported_dtype);
}

TEST_F(NumpyFile, N2_OfTwoArraysInOneFileTheFirstIsTaken) {
  const std::string one = npy("<i2", "(6,)", false, six), other = npy("|u1", "(1,)", false, "x");
  for (const std::string& tail : {std::string("trailing"), other}) {
    auto file = open(one + tail);
    ASSERT_TRUE(file);
    EXPECT_EQ(file->image().schema().tensor_count, 1u);
    EXPECT_EQ(bytes_of(*file, "file"), six);
    file = open(test::zip({{"a.npy", one + tail}}));
    ASSERT_TRUE(file);
    EXPECT_EQ(bytes_of(*file, "a"), six);
  }
}

TEST_F(NumpyFile, Names_are_names_and_never_paths) {
  const std::string array = npy("<i2", "(6,)", false, six);
  const auto file = open(
      test::zip({{"../../x.npy", array}, {"/etc/passwd.npy", array}, {".npy", array}, {"a.npy.npy", array}}));
  ASSERT_TRUE(file);
  for (const char* name : {"../../x", "/etc/passwd", "", "a.npy"}) EXPECT_EQ(bytes_of(*file, name), six) << name;
}

TEST_F(NumpyFile, What_NumPy_goes_on_with_and_this_does_not) {
  const std::string array = npy("<i2", "(6,)", false, six);
  EXPECT_EQ(refusal(test::zip({{"a.npy", array}, {"a", array}})).code, tp::errc::duplicate_name);
  EXPECT_EQ(refusal(test::zip({{"a.npy", "no array"}})).code, tp::errc::bad_file);
  EXPECT_EQ(refusal(test::zip({{"a.npy", array}, {"notes.txt", "no array"}})).code, tp::errc{})
      << "other files are not looked at";
  EXPECT_EQ(refusal(test::zip({{"__metadata__.npy", array}})).code, tp::errc::reserved_name);
  std::string wrong = test::zip({{"a.npy", array}, {"b.npy", array}});
  wrong[wrong.find(six)] ^= 1;
  const auto why = refusal(wrong);
  EXPECT_EQ(why.code, tp::errc::bad_file) << "a wrong checksum";
  EXPECT_EQ(refusal(wrong, {.check_crc32 = false}).code, tp::errc{}) << "unless nobody wants to know";
  EXPECT_EQ(refusal(test::zip({{"a.npy", array, 0, 12}})).code, tp::errc::unsupported_layout);
}

TEST_F(NumpyFile, Packed_arrays_are_unpacked) {
  const std::string array = npy("<i2", "(6,)", false, six), columns = npy("<i2", "(2, 3)", true, six);
  const auto packed = [](const std::string& name, const std::string& content) {  // as one stored block of DEFLATE
    const auto n = static_cast<unsigned>(content.size());
    const char head[5]{1, static_cast<char>(n), static_cast<char>(n >> 8), static_cast<char>(~n),
                       static_cast<char>(~n >> 8)};
    test::zip_file f{.name = name, .content = std::string(head, 5) + content, .method = 8};
    f.size = content.size();
    f.unpacked = content;
    return f;
  };
  const auto file = open(test::zip({packed("a.npy", array),
                                    {"b.npy", array},
                                    packed("c.npy", columns),
                                    packed("d.npy", npy("<i2", "(0,)", false, ""))}));
  ASSERT_TRUE(file);
  EXPECT_EQ(bytes_of(*file, "a"), six);
  EXPECT_EQ(bytes_of(*file, "b"), six);
  EXPECT_EQ(bytes_of(*file, "c"), bytes_of(*open(test::zip({{"c.npy", columns}})), "c"));
  EXPECT_EQ(bytes_of(*file, "d"), "");
  EXPECT_EQ(refusal(test::zip({{"a.npy", array, 0, 8}})).code, tp::errc::bad_file) << "no stream";
  auto wrong = packed("a.npy", array);
  wrong.unpacked += "x";
  EXPECT_EQ(refusal(test::zip({wrong})).code, tp::errc::bad_file) << "a wrong checksum";
  wrong = packed("a.npy", array);
  wrong.size = std::uint64_t{1} << 31;
  EXPECT_EQ(refusal(test::zip({wrong})).code, tp::errc::bad_file)
      << "memory grows with what is there, not with what is claimed";
}

TEST_F(NumpyFile, Files_that_are_none) {
  for (const std::string& content :
       {std::string(), std::string("P"), std::string("PK\3\4"), std::string("\x93NUMPY"), std::string(1000, '\0'),
        std::string("\x80\4K\1.", 5), npy("<i2", "(7,)", false, six), "PK\3\4" + std::string(100, 'x')}) {
    const auto why = refusal(content);
    EXPECT_EQ(why.code, tp::errc::bad_file);
    EXPECT_EQ(why.name.view(), "file");
  }
  EXPECT_EQ(code_of(tp::numpy_file::open((directory / "missing.npy").string())), tp::errc::io);
  EXPECT_EQ(refusal(test::zip({{"a.npy", npy("<i2", "(6,)", false, six)}, {"b.npy", npy("<i2", "(6,)", false, six)}}),
                    {.most_arrays = 1})
                .code,
            tp::errc::too_many_tensors);
}

struct published {
  using net = tp::pipeline<tp::numpy_files, tp::fixed_bytes<64_KiB>, tp::loopback>;
  using others = tp::pipeline<tp::tensor_list, tp::fixed_bytes<64_KiB>, tp::loopback>;
  std::unique_ptr<net::downloader> owner = std::make_unique<net::downloader>();
};

TEST_F(NumpyFile, Is_pulled_into_memory) {
  std::string numbers(400'000, '\0'), swapped = numbers;
  for (std::size_t i = 0; i < numbers.size(); ++i) swapped[i ^ 3] = numbers[i] = static_cast<char>(i * 7 + i / 251);
  const auto file = open(
      test::zip({{"w.npy", npy(">f4", "(100000,)", false, swapped)}, {"b.npy", npy("<i2", "(2, 3)", false, six)}}));
  ASSERT_TRUE(file);
  byte_vector w(400'000), b(12);
  const std::uint64_t long_one[] = {100'000}, two_by_three[] = {2, 3};
  const tp::mutable_tensor_view views[] = {{"b", tp::dtype::i16, two_by_three, b.data()},
                                           {"w", tp::dtype::f32, long_one, w.data()}};
  auto mine = tp::dynamic_image::make(views);
  published p;
  const auto ref = p.owner->add_tensors(*file);
  ASSERT_TRUE(succeeded(ref));
  const auto done = published::others::download_tensors(*p.owner, *ref, *mine);
  ASSERT_TRUE(succeeded(done));
  EXPECT_EQ(std::memcmp(w.data(), numbers.data(), w.size()), 0);
  EXPECT_EQ(std::memcmp(b.data(), six.data(), b.size()), 0);
}

TEST_F(NumpyFile, A_file_that_becomes_shorter_is_an_error_and_no_signal) {
  const auto path = write("w.npy", npy("<f4", "(100000,)", false, std::string(400'000, 'w')));
  const auto file = tp::numpy_file::open(path);
  ASSERT_TRUE(file);
  byte_vector w(400'000);
  const std::uint64_t shape[] = {100'000};
  const tp::mutable_tensor_view view{"w", tp::dtype::f32, shape, w.data()};
  auto mine = tp::dynamic_image::make(std::span(&view, 1));
  published p;
  const auto ref = p.owner->add_tensors(*file);
  ASSERT_TRUE(ref);
  fs::resize_file(path, 200'000);
  EXPECT_FALSE(published::others::download_tensors(*p.owner, *ref, *mine));
  EXPECT_EQ(bytes_of(*file, "w"), "failed");
  EXPECT_EQ(code_of(p.owner->add_tensors(*file)), tp::errc::io) << "nor is it published again";
}

TEST_F(NumpyFile, A_file_of_any_size_needs_no_more_memory) {
  struct kind {
    const char* shape;
    bool fortran;
    std::size_t most;
  };
  // 4 MiB to turn rows, if at least two of them fit
  for (const kind& k : {kind{"(1048576, 32)", true, 4 << 20}, kind{"(32, 1048576)", true, 64 * 1024},
                        kind{"(32, 1048576)", false, 64 * 1024}}) {
    const std::string content = npy(">f8", k.shape, k.fortran, "");
    const auto path = write("large.npy", content);
    fs::resize_file(path, content.size() + (256ull << 20));  // a hole
    byte_vector slice(64 * 1024);
    const_byte_span out[2];
    const test::allocation_watch watch;
    const auto file = tp::numpy_file::open(path);
    ASSERT_TRUE(file);
    const auto set_up = watch.count();
    for (const std::uint64_t at : {0ull, 1'000'000ull, 255ull << 20}) {
      EXPECT_GT(tp::gather(file->image().source(), at, 1 << 20, out, slice).bytes, 0u);
    }
    EXPECT_EQ(watch.count(), set_up) << "nothing for each chunk";
    EXPECT_LE(watch.largest(), k.most);
  }
}

}  // namespace numpy_file_test
