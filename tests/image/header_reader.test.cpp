#include <tensorpull/image/header_reader.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace header_reader_test {

namespace tp = tensorpull;
using tp::errc;

struct read_header {
  tp::header_reader reader{100};
  std::vector<tp::tensor_entry> tensors{};
  std::vector<std::uint64_t> extents{};
  std::vector<tp::metadata_entry> pairs{};

  tp::result<void> take(const std::string& text) {
    const std::string all = std::string(8, '\0') + text;
    return reader.take(std::as_bytes(std::span(all)));
  }
};

std::string tensor(const std::string& fields) { return "{\"w\":{" + fields + "}}"; }

TEST(HeaderReader, Keeps_what_the_text_says) {
  read_header h;
  ASSERT_TRUE(
      h.take(R"({"__metadata__":{"k":"v\n\u0001","":""},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
             R"("b":{"dtype":"U8","shape":[],"data_offsets":[24,25]}}  )"));
  ASSERT_TRUE(h.reader.complete());
  h.reader.entries(h.tensors, h.extents, h.pairs);
  ASSERT_EQ(h.pairs.size(), 2u);
  EXPECT_EQ(h.pairs[0].key, "k");
  EXPECT_EQ(h.pairs[0].value, "v\n\x01");
  ASSERT_EQ(h.tensors.size(), 2u);
  EXPECT_EQ(h.tensors[0].name, "a");
  EXPECT_EQ(h.tensors[0].type, tp::dtype::f32);
  EXPECT_EQ(std::vector(h.tensors[0].extents().begin(), h.tensors[0].extents().end()),
            (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(h.tensors[1].name, "b");
  EXPECT_EQ(h.tensors[1].rank, 0u);
}

TEST(HeaderReader, Refuses_any_spelling_but_the_writers) {
  EXPECT_TRUE(read_header().take(tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1])")));
  for (const std::string& text : {
           tensor(R"("shape":[1],"dtype":"U8","data_offsets":[0,1])"),
           tensor(R"("dtype":"U8","data_offsets":[0,1],"shape":[1])"),
           tensor(R"("dtype":"U8","shape":[1])"),
           tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1)"),
           tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0])"),
           tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1,2])"),
           tensor(R"("dtype": "U8","shape":[1],"data_offsets":[0,1])"),
           tensor(R"("dtype":"U8","shape":[01],"data_offsets":[0,1])"),
           tensor(R"("dtype":"U8","shape":[1.0],"data_offsets":[0,1])"),
           tensor(R"("dtype":"U8","shape":[1e0],"data_offsets":[0,1])"),
           tensor(R"("dtype":"U8","shape":[1,],"data_offsets":[0,1])"),
           tensor(R"("dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,1])"),
           std::string(R"({"\/":{)"),
           std::string(R"({"\u001F":{)"),
           std::string(R"({"\u0020":{)"),
           std::string("{} x"),
           std::string("{}\n"),
           std::string(" {}"),
       }) {
    const auto ok = read_header().take(text);
    EXPECT_TRUE(!ok && ok.error().code == errc::bad_frame) << text;
  }
}

TEST(HeaderReader, Errors_say_where) {
  read_header h;
  const auto bad = h.take(R"({"w":{"dtype":"F99","shape")");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, errc::unsupported_dtype);
  EXPECT_EQ(bad.error().name.view(), "w");
  EXPECT_EQ(bad.error().at, 8 + std::string_view(R"({"w":{"dtype":"F99)").size());
}

TEST(HeaderReader, Goes_back_to_any_place) {
  const std::string text = R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2,34],"data_offsets":[0,272]}} )";
  for (std::size_t at = 0; at < text.size(); ++at) {
    read_header h;
    ASSERT_TRUE(h.take(text.substr(0, at)));
    const auto mark = h.reader.here();
    (void)h.reader.take(std::as_bytes(std::span(text).subspan(at, text.size() - at - 1)));
    h.reader.back_to(mark);
    ASSERT_TRUE(h.reader.take(std::as_bytes(std::span(text).subspan(at)))) << at;
    ASSERT_TRUE(h.reader.complete());
    h.reader.entries(h.tensors, h.extents, h.pairs);
    ASSERT_EQ(h.tensors.size(), 1u);
    EXPECT_EQ(h.tensors[0].name, "a");
    EXPECT_EQ(h.tensors[0].shape[1], 34u);
    EXPECT_EQ(h.pairs[0].value, "v");
  }
}

}  // namespace header_reader_test
