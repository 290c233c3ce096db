#include "support/allocation_counter.hpp"
#include "support/child_process.hpp"
#include "support/painted_stack.hpp"
#include "support/process_entries.hpp"
#include "support/results.hpp"
#include "support/safetensors_text.hpp"
#include "support/whole_schedule.hpp"

#include <tensorpull/image/gather_scatter.hpp>
#include <tensorpull/tensors/safetensors/safetensors.hpp>

#include <sys/resource.h>

#include <array>
#include <functional>
#include <vector>

namespace safetensors_test {

namespace tp = tensorpull;
using namespace test;

class SafetensorsSource : public folder_test {
 protected:
  tp::result<tp::safetensors_image> open(std::string_view content) const {
    put(content);
    return tp::safetensors_image::open(path);
  }
  void accepted(std::string_view text, std::string_view data = {}) const {
    const auto image = open(safetensors_file_of(text, data));
    EXPECT_TRUE(image) << text.substr(0, 200) << ": " << to_string(image.error().code) << " at " << image.error().at;
  }
  void refused(errc code, std::string_view text, std::string_view data = {}) const {
    const auto image = open(safetensors_file_of(text, data));
    ASSERT_FALSE(image) << text.substr(0, 200);
    EXPECT_EQ(image.error().code, code) << text.substr(0, 200) << ": " << to_string(image.error().code);
  }
  /// The bytes of the image, through a slice of `slice_bytes`; short if reading failed.
  static std::string bytes_of(const tp::safetensors_image& image, std::size_t slice_bytes = 1000) {
    std::string all;
    byte_vector slice(slice_bytes);
    std::array<const_byte_span, 4> out;
    while (all.size() < image.schema().image_bytes) {
      const auto got = tp::gather(image.source(), all.size(), image.schema().image_bytes - all.size(), out, slice);
      for (std::size_t i = 0; i < got.pieces; ++i)
        all.append(reinterpret_cast<const char*>(out[i].data()), out[i].size());
      if (got.failed || got.bytes == 0) break;
    }
    return all;
  }
  static std::string tensor(const tp::safetensors_image& image, std::string_view name) {
    for (const tp::tensor_entry& e : image.schema().entries())
      if (e.name == name)
        return bytes_of(image).substr(static_cast<std::size_t>(image.schema().header_bytes + e.begin),
                                      static_cast<std::size_t>(e.size_bytes()));
    return "no such tensor";
  }
};

TEST_F(SafetensorsSource, Publishes_in_image_order_whatever_the_order_of_the_file) {
  const auto image = open(safetensors_file_of("{" + entry("z", "U8", "3", 4, 7) + "," + entry("a", "U8", "4", 0, 4) +
                                                  "," + entry("w", "F32", "", 7, 11) +
                                                  ",\"__metadata__\":{\"format\":\"pt\"}}   ",
                                              "aaaazzzwwww"));
  ASSERT_TRUE(image);
  EXPECT_EQ(
      bytes_of(*image),
      safetensors_file_of(
          R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]},)"
          R"("z":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})" +
              std::string(3, ' '),
          "wwwwaaaazzz"));
  EXPECT_EQ(image->file_offset(0), image->file().size() - 4);
  EXPECT_EQ(tensor(*image, "z"), "zzz");
}

TEST_F(SafetensorsSource, Only_some_tensors_of_a_larger_model) {
  put(safetensors_file_of("{" + entry("base.w", "U8", "3", 0, 3) + "," + entry("head.w", "U8", "2", 3, 5) + "," +
                              entry("head.b", "U8", "1", 5, 6) + "}",
                          "bbbwwx"));
  const auto head = tp::safetensors_image::open(path, [](std::string_view name) { return name.starts_with("head."); });
  ASSERT_TRUE(head);
  EXPECT_EQ(head->schema().tensor_count, 2u);
  EXPECT_EQ(tensor(*head, "head.w") + tensor(*head, "head.b"), "wwx");
  const auto none = tp::safetensors_image::open(path, [](std::string_view) { return false; });
  ASSERT_TRUE(none);
  EXPECT_EQ(bytes_of(*none), safetensors_file_of("{}      "));
  put(safetensors_file_of("{" + entry("base.w", "U8", "3", 1, 4) + "," + entry("head.w", "U8", "2", 4, 6) + "}",
                          "xbbbww"));
  EXPECT_FALSE(tp::safetensors_image::open(path, [](std::string_view name) { return name.starts_with("head."); }))
      << "the whole file is checked";
}

TEST_F(SafetensorsSource, S1_LengthsThatWrapAroundAreRefused) {
  constexpr std::uint64_t most = ~std::uint64_t{0};
  for (const std::uint64_t length :
       {most - 7, most - 3, most - 1, std::uint64_t{1} << 63, std::uint64_t{100'000'001}}) {
    const allocation_watch watch;
    const auto image = open(safetensors_file_of("{}      ", {}, length));
    EXPECT_EQ(code_of(image), errc::does_not_fit) << length;
    EXPECT_LT(watch.largest(), 100'000u) << "nothing is allocated for what is only claimed";
  }
  for (const std::uint64_t length : {9u, 1000u, 100'000'000u}) {
    const allocation_watch watch;
    EXPECT_EQ(code_of(open(safetensors_file_of("{}      ", {}, length))), errc::bad_file) << length;
    EXPECT_LT(watch.largest(), 100'000u);
  }
  for (std::size_t n = 0; n < 8; ++n) EXPECT_EQ(code_of(open(std::string(n, '\0'))), errc::bad_file);
  EXPECT_EQ(code_of(open(std::string(8, '\0'))), errc::bad_file) << "no text is no object";
}

/// Exit status of `what` in a process with `limit` bytes of address space.
int with_address_space([[maybe_unused]] rlim_t limit, const std::function<int()>& what) {
  return in_a_process([&] {
#if !defined(TENSORPULL_TEST_SANITIZED)
    const rlimit r{limit, limit};
    ::setrlimit(RLIMIT_AS, &r);
#endif
    return what();
  });
}

TEST_F(SafetensorsSource, S2_ALongestHeaderIsReadInAGibibyteAndALongerOneIsNot) {
  constexpr std::size_t longest = 100'000'000;
  const auto verdict = [&] {
    return with_address_space(1u << 30, [&] {
      const auto image = tp::safetensors_image::open(path);
      if (!image) return 100 + static_cast<int>(image.error().code);
      return static_cast<int>(image->schema().tensor_count + 10 * image->schema().metadata_count);
    });
  };
  const auto fill = [&](std::string head, std::string_view tail, std::size_t bytes, char with) {
    put(safetensors_file_of(head.append(bytes - head.size() - tail.size(), with).append(tail), "x"));
  };
  const std::string one = "{" + entry("a", "U8", "1", 0, 1);
  fill(one + "}", "", longest + 1, ' ');
  EXPECT_EQ(verdict(), 100 + static_cast<int>(errc::does_not_fit));
#if !defined(TENSORPULL_TEST_SANITIZED)  // which make a byte of JSON cost a hundred times as much
  if (test::whole_schedule()) {
    fill(one + "}", "", longest, ' ');
    EXPECT_EQ(verdict(), 1);
  }
  fill(one + ",\"__metadata__\":{\"k\":\"", "\"}}", longest, 'v');
  EXPECT_EQ(verdict(), 11);
#endif
}

TEST_F(SafetensorsSource, S3_NestingIsBoundedLikeThatOfTheReferenceLibrary) {
  const auto nested = [](std::size_t depth, std::string_view open, std::string_view close) {
    return repeated(open, depth) + "1" + repeated(close, depth);
  };
  on_a_stack_of(256 * 1024, [&] {  // so small that reading by recursion would overflow it
    const std::array<std::array<std::string_view, 2>, 2> brackets{{{"[", "]"}, {"{\"k\":", "}"}}};
    for (const auto& [begin, end] : brackets) {
      const std::string deep = nested(50'000, begin, end);
      refused(errc::bad_file, "{\"a\":{\"dtype\":" + deep + ",\"shape\":[],\"data_offsets\":[0,1]}}", "x");
      refused(errc::bad_file, "{\"__metadata__\":{\"k\":" + deep + "}}");
      refused(errc::bad_file, "{\"__metadata__\":" + deep + "}");
      refused(errc::bad_file, "{\"a\":" + deep + "}");
      refused(errc::bad_file, "{" + entry("a", "U8", "1", 0, 1, ",\"x\":" + deep) + "}", "x");
      accepted("{" + entry("a", "U8", "1", 0, 1, ",\"x\":" + nested(125, begin, end)) + "}", "x");
      refused(errc::bad_file, "{" + entry("a", "U8", "1", 0, 1, ",\"x\":" + nested(126, begin, end)) + "}", "x");
    }
    refused(errc::bad_file, "[" + nested(50'000, "[", "]") + "]");
  });
}

TEST_F(SafetensorsSource, S4_SizesThatOverflowAreRefused) {
  refused(errc::size_overflow, "{" + entry("a", "F32", "4294967296,4294967296", 0, 0) + "}");
  refused(errc::size_overflow, "{" + entry("a", "F32", "4294967296,4294967296", 0, std::uint64_t{1} << 40) + "}");
  refused(errc::size_overflow, "{" + entry("a", "U8", "9223372036854775809,2", 0, 2) + "}", "xx");
  refused(errc::size_overflow, "{" + entry("a", "F32", "4611686018427387905", 0, 4) + "}", "xxxx");
  refused(errc::size_overflow, "{" + entry("a", "F32", "4294967296,4294967296,0", 0, 0) + "}");
  refused(errc::bad_file, "{" + entry("a", "U8", "0,18446744073709551616", 0, 0) + "}");
  refused(errc::cut_file, "{" + entry("a", "U8", "1099511627776", 0, std::uint64_t{1} << 40) + "}");
  refused(errc::misplaced_tensor, "{" + entry("a", "U8", "1", ~std::uint64_t{0}, 0) + "}", "x");
  refused(errc::unsupported_dtype, "{" + entry("a", "F4", "3", 0, 1) + "}", "x");
}

TEST_F(SafetensorsSource, S5_HolesOverlapsAndBytesBehindTheDataAreRefused) {
  const auto two = [](std::uint64_t a0, std::uint64_t a1, std::uint64_t b0, std::uint64_t b1) {
    return "{" + entry("a", "U8", std::to_string(a1 - a0), a0, a1) + "," +
           entry("b", "U8", std::to_string(b1 - b0), b0, b1) + "}";
  };
  accepted(two(0, 2, 2, 4), "xxxx");
  accepted(two(2, 4, 0, 2), "xxxx");
  accepted(two(0, 4, 4, 4), "xxxx");
  accepted(two(0, 4, 0, 0), "xxxx");
  refused(errc::misplaced_tensor, two(0, 4, 3, 3), "xxxx");
  refused(errc::misplaced_tensor, two(0, 2, 3, 4), "xxxx");
  refused(errc::misplaced_tensor, two(1, 2, 2, 4), "xxxx");
  refused(errc::misplaced_tensor, two(0, 3, 2, 4), "xxxx");
  refused(errc::misplaced_tensor, two(0, 4, 0, 4), "xxxx");
  refused(errc::trailing_bytes, two(0, 2, 2, 4), "xxxxx");
  refused(errc::cut_file, two(0, 2, 2, 4), "xxx");
  refused(errc::trailing_bytes, two(0, 2, 2, 4), "xxxxPK\x03\x04");
  refused(errc::trailing_bytes, "{}", "x");
  refused(errc::bad_file, "{" + entry("a", "U8", "1", 0, 1, ",\"x\":1}") + "}", "x");
}

TEST_F(SafetensorsSource, S6_OneNameTwiceIsRefused) {
  refused(errc::duplicate_name, "{" + entry("a", "U8", "4", 0, 4) + "," + entry("a", "F32", "1", 4, 8) + "}",
          "xxxxyyyy");
  refused(errc::duplicate_name, "{" + entry("a", "U8", "4", 0, 4) + "," + entry("a", "U8", "4", 0, 4) + "}", "xxxx");
  refused(errc::duplicate_name, "{" + entry("a", "U8", "0", 0, 0) + "," + entry("a", "U8", "0", 0, 0) + "}");
  refused(errc::duplicate_name, "{" + entry("a", "U8", "0", 0, 0) + "," + entry("\\u0061", "U8", "0", 0, 0) + "}");
  refused(errc::duplicate_name, "{\"__metadata__\":{},\"__metadata__\":{}}");
  refused(errc::duplicate_name, "{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}");
  refused(errc::bad_file, "{" + entry("a", "U8", "1", 0, 1, ",\"dtype\":\"U8\"") + "}", "x");
}

TEST_F(SafetensorsSource, S7_OddFilesAreReadExactly) {
  auto image = open(
      safetensors_file_of("{" + entry("b", "F64", "1", 1, 9) + "," + entry("a", "U8", "1", 0, 1) + "}", "abbbbbbbb"));
  ASSERT_TRUE(image) << "an F64 at an odd address";
  EXPECT_EQ(tensor(*image, "a") + tensor(*image, "b"), "abbbbbbbb");
  const std::string name(1'000'000, 'n');
  image = open(safetensors_file_of("{" + entry(name, "U8", "1", 0, 1) + "}", "x"));
  ASSERT_TRUE(image);
  EXPECT_EQ(image->schema().tensors[0].name, name);
  const auto ones = [](std::size_t rank) { return "1" + repeated(",1", rank - 1); };
  image = open(safetensors_file_of("{" + entry("a", "U8", ones(300), 0, 1) + "}", "x"));
  ASSERT_TRUE(image);
  EXPECT_EQ(image->schema().tensors[0].rank, 300u);
  accepted("{" + entry("a", "U8", ones(65'535), 0, 1) + "}", "x");
  // documented: the one limit that the library has not
  refused(errc::unsupported_layout, "{" + entry("a", "U8", ones(65'536), 0, 1) + "}", "x");
  image = open(safetensors_file_of("{" + entry("a", "F32", "0,18446744073709551615,18446744073709551615", 0, 0) + "}"));
  ASSERT_TRUE(image);
  EXPECT_EQ(image->schema().tensors[0].shape[2], ~std::uint64_t{0});
}

TEST_F(SafetensorsSource, S8_AFileThatShrinksIsAnErrorOfTheRead) {
  const std::string data = repeated("0123456789", 1000);
  const auto image = open(safetensors_file_of("{" + entry("a", "U8", "10000", 0, 10000) + "}", data));
  ASSERT_TRUE(image);
  const std::string whole = bytes_of(*image);
  for (const std::uintmax_t left :
       {image->file().size() - 1, std::uintmax_t{5000}, image->file_offset(0), std::uintmax_t{0}}) {
    std::filesystem::resize_file(path, left);
    const std::string got = bytes_of(*image, 64);
    EXPECT_LE(got.size(), std::max<std::uintmax_t>(left, image->schema().header_bytes));
    EXPECT_EQ(got, whole.substr(0, got.size())) << "never other bytes";
  }
}

TEST_F(SafetensorsSource, Headers_that_the_specification_forbids_and_the_library_reads) {
  const std::string a = entry("a", "U8", "1", 0, 1);
  refused(errc::bad_file, " {" + a + "}", "x");  // it MUST begin with {
  refused(errc::bad_file, "{" + a + "}\n", "x");  // padding is 0x20
  refused(errc::bad_file, "{\"a\":[\"U8\",[1],[0,1]]}", "x");
  refused(errc::bad_file, "{\"a\":{\"dtype\":{\"U8\":null},\"shape\":[1],\"data_offsets\":[0,1]}}", "x");
  refused(errc::bad_file, "{\"__metadata__\":null," + a + "}", "x");
}

TEST_F(SafetensorsSource, Headers_that_the_library_reads_are_read) {
  const auto with = [&](std::string_view value) {
    accepted("{" + entry("a", "U8", "1", 0, 1, std::string(",\"x\":").append(value)) + "}", "x");
  };
  for (const std::string_view value :
       {"null", "true", "false", "-0", "-1", "1.5", "1e308", "0e999999", "1e-999999", "\"\"", "[]", "{}", "[[],{}]",
        "{\"dtype\":[{\"y\":1,\"z\":\"\\u0000\"}]}", "18446744073709551616", "{\"y\":1,\"y\":2}"})
    with(value);
  accepted("{ \n\t\r\"a\" : { \"shape\":[ 1 ] ,\"data_offsets\" :[0 , 1],\"dtype\":\"\\u0055\\u0038\"} }  ", "x");
  accepted("{\"__metadata__\":{},\"\":{\"\\u0064type\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "x");
  accepted("{\"__met\\u0061data__\":{\"\":\"\"}}");
  accepted("{}");
  accepted("{" + entry("\\ud83d\\ude00\\/\\\"\\\\\\b\\f\\n\\r\\t\x7f\xf4\x8f\xbf\xbf", "U8", "1", 0, 1) + "}", "x");
}

TEST_F(SafetensorsSource, Text_that_is_no_header_is_refused) {
  const auto with = [&](std::string_view value) {
    refused(errc::bad_file, "{" + entry("a", "U8", "1", 0, 1, std::string(",\"x\":").append(value)) + "}", "x");
  };
  for (const std::string_view value : {"",
                                       "1e999",
                                       "-1e999",
                                       "NaN",
                                       "Infinity",
                                       "01",
                                       "+1",
                                       "1.",
                                       ".5",
                                       "'x'",
                                       "tru",
                                       "[1,]",
                                       "{\"y\"}",
                                       "{y:1}",
                                       "\"\\q\"",
                                       "\"\\u12\"",
                                       "\"\\ud800\"",
                                       "\"\\ude00\"",
                                       "\"\\ud800\\u0041\"",
                                       "\"\x01\"",
                                       "\"\xff\"",
                                       "\"\xed\xa0\x80\"",
                                       "\"\xc0\x80\"",
                                       "/**/1",
                                       "1 2",
                                       "[",
                                       "]",
                                       "}",
                                       "\"",
                                       "\\"})
    with(value);
  const auto fields = [&](std::string_view dtype, std::string_view shape, std::string_view offsets,
                          std::string_view behind = {}) {
    std::string text = "{\"a\":{";
    if (!dtype.empty()) text.append("\"dtype\":").append(dtype).append(shape.empty() && offsets.empty() ? "" : ",");
    if (!shape.empty()) text.append("\"shape\":").append(shape).append(offsets.empty() ? "" : ",");
    if (!offsets.empty()) text.append("\"data_offsets\":").append(offsets);
    refused(errc::bad_file, text.append(behind).append("}}"), "x");
  };
  fields("", "", "");
  fields("\"U8\"", "[1]", "");
  fields("\"U8\"", "", "[0,1]");
  fields("", "[1]", "[0,1]");
  fields("\"U8\"", "[1]", "[0,1]", ",");
  fields("4", "[1]", "[0,1]");
  for (const std::string_view shape : {"1", "null", "[1.0]", "[-1]", "[1e0]", "[\"1\"]", "[[1]]", "{}", "{\"0\":1}",
                                       "[true]", "[null]", "[1,]", "\"1\""})
    fields("\"U8\"", shape, "[0,1]");
  fields("\"U8\"", "[-0]", "[0,0]");
  for (const std::string_view offsets :
       {"[0]", "[]", "[0,1,1]", "{\"0\":0}", "[0,1.0]", "[-0,1]", "[[0],1]", "null", "1"})
    fields("\"U8\"", "[1]", offsets);
  refused(errc::misplaced_tensor, "{" + entry("a", "U8", "1", 0, 2) + "}", "x");
  refused(errc::misplaced_tensor, "{" + entry("a", "U8", "1", 1, 0) + "}", "x");
  refused(errc::unsupported_dtype, "{" + entry("a", "u8", "1", 0, 1) + "}", "x");
  refused(errc::unsupported_dtype, "{" + entry("a", "", "1", 0, 1) + "}", "x");
  for (const std::string_view text : {"[]",
                                      "null",
                                      "1",
                                      "\"x\"",
                                      "{",
                                      "}",
                                      "{}}",
                                      "{}x",
                                      "{}{}",
                                      "\xef\xbb\xbf{}",
                                      "{\"a\":null}",
                                      "{\"a\":1}",
                                      "{\"a\":[]}",
                                      "{\"__metadata__\":{\"k\":1}}",
                                      "{\"__metadata__\":{\"k\":null}}",
                                      "{\"__metadata__\":[]}",
                                      "{\"__metadata__\":{\"k\":{}}}",
                                      "{,}",
                                      "{\"a\"}",
                                      "{}\xff"})
    refused(errc::bad_file, text);
  refused(errc::bad_file, std::string_view("{}\0", 3));
  refused(errc::bad_file, std::string_view("\0{}", 3));
  refused(errc::bad_file, std::string_view("{\0}", 3));
  refused(errc::bad_file, "{\"__metadata__\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "x");
}

TEST_F(SafetensorsSource, Errors_say_which_tensor_and_where) {
  put(safetensors_file_of("{" + entry("first", "U8", "1", 0, 1) + "," + entry("second", "U9", "1", 1, 2) + "}", "xx"));
  auto failed = tp::safetensors_image::open(path).error();
  EXPECT_EQ(failed.name.view(), "second");
  EXPECT_EQ(failed.at,
            8 + 1 + entry("first", "U8", "1", 0, 1).size() + 1 + std::string_view(R"("second":{"dtype":"U9")").size());
  put(safetensors_file_of("{" + entry("first", "U8", "1", 0, 1) + "," + entry("second", "U8", "1", 2, 3) + "}", "xxx"));
  failed = tp::safetensors_image::open(path).error();
  EXPECT_EQ(failed.name.view(), "second");
  EXPECT_EQ(failed.at, std::filesystem::file_size(path) - 2);
}

TEST_F(SafetensorsSource, The_table_is_all_that_opening_keeps) {
  constexpr std::size_t tensors = 5000;
  std::string text = "{", names;
  for (std::size_t i = 0; i < tensors; ++i) {
    const std::string name = "model.layers." + std::to_string(i) + ".weight";
    names += name;
    const std::string ignored = ",\"ignored\":[1,2,3,{\"text\":\"" + std::string(100, 't') + "\"}]";
    text += (i == 0 ? "" : ",") + entry(name, "F32", "1,1,1,1", 4 * i, 4 * i + 4, ignored);
  }
  put(safetensors_file_of(text + "}" + std::string(1'000'000, ' '), std::string(4 * tensors, 'x')));
  const allocation_watch watch;
  const auto image = tp::safetensors_image::open(path);
  ASSERT_TRUE(image);
  EXPECT_LE(image->table_bytes(), 96 * tensors + names.size() + 512);
  EXPECT_LE(watch.largest(), image->table_bytes()) << "nothing is larger than the table";
  EXPECT_LT(watch.count(), 100u) << "and the strings' memory is used again";
  byte_vector slice(4096);
  std::array<const_byte_span, 4> out;
  const allocation_watch reading;
  for (std::uint64_t at = 0; at < image->schema().image_bytes;) {
    const auto got = tp::gather(image->source(), at, image->schema().image_bytes - at, out, slice);
    ASSERT_GT(got.bytes, 0u);
    at += got.bytes;
  }
  EXPECT_EQ(reading.count(), 0u);
}

TEST_F(SafetensorsSource, Moves_and_closes_what_it_opened) {
  const auto before = descriptors();
  {
    auto image = open(safetensors_file_of("{" + entry("a", "U8", "2", 0, 2) + "}", "ab"));
    ASSERT_TRUE(image);
    const tp::source_view view = image->source();
    tp::safetensors_image moved = std::move(*image);
    EXPECT_EQ(view.schema, &moved.schema());
    EXPECT_EQ(tensor(moved, "a"), "ab");
    EXPECT_EQ(descriptors(), before + 1);
    for (int i = 0; i < 10; ++i)
      EXPECT_FALSE(open(safetensors_file_of("{" + entry("a", "U8", "2", 0, 2) + "}", "abc")));
    EXPECT_EQ(descriptors(), before + 1);
  }
  EXPECT_EQ(descriptors(), before);
  std::filesystem::remove(path);
  EXPECT_EQ(tp::safetensors_image::open(path).error().system, ENOENT);
  EXPECT_EQ(tp::safetensors_image::open(directory.string()).error().system, EISDIR);
}

}  // namespace safetensors_test
