#include <tensorpull/satellites/numpy_files/detail/npy_header.hpp>

#include "memory_file.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace npy_header_test {

using namespace tensorpull;
using test::npy;

result<npy_header> parse(std::string_view file) {
  // in memory of exactly its size, so that a sanitizer sees what reads behind it
  const std::vector<char> exact(file.begin(), file.end());
  return parse_npy_header(std::as_bytes(std::span(exact)).first(std::min(exact.size(), npy_header_most_bytes)),
                          exact.size());
}
std::string text(std::string_view descr = "'<f4'", std::string_view order = "False",
                 std::string_view shape = "(2, 3)") {
  return "{'descr': " + std::string(descr) + ", 'fortran_order': " + std::string(order) +
         ", 'shape': " + std::string(shape) + ", }";
}
const std::string data(24, 'x');

void expect_read(const std::string& header, unsigned version = 1) {
  const auto h = parse(npy(header, data, version));
  ASSERT_TRUE(h) << header;
  EXPECT_EQ(h->format.type, dtype::f32);
  EXPECT_EQ(h->data_bytes, 24u);
  EXPECT_EQ(h->data_offset % 64, 0u);
}
void expect_refused(const std::string& header, errc why = errc::bad_file, unsigned version = 1) {
  const auto h = parse(npy(header, data, version));
  ASSERT_FALSE(h) << header;
  EXPECT_EQ(h.error(), why) << header;
}

TEST(NpyHeader, Is_read_as_it_was_written) {
  const auto h = parse(npy(text("'>c8'", "True", "(1, 3)"), data));
  ASSERT_TRUE(h);
  EXPECT_EQ(h->format.type, dtype::c64);
  EXPECT_EQ(h->format.swap_bytes, 4);
  EXPECT_TRUE(h->fortran_order);
  ASSERT_EQ(h->rank, 2);
  EXPECT_EQ(h->extents()[1], 3u);
  EXPECT_EQ(h->data_bytes, 24u);
  for (const unsigned version : {1u, 2u, 3u}) expect_read(text(), version);
  EXPECT_EQ(parse(npy(text("'|u1'", "False", "()"), "x"))->rank, 0);
  EXPECT_EQ(parse(npy(text("'<f8'", "False", "(0, 5)"), ""))->data_bytes, 0u);
}

TEST(NpyHeader, Every_spelling_of_the_dict_that_Python_evaluates) {
  for (const char* shape : {"(2,3,)", "( +2 ,\t3)", "(0x2, 0b11)", "((2), 3)", "(2L, 3L)", "(2,# rows\n 3)",
                            "(2, \\\n3)", "(2, 3 L L)", "(0o2, 0x_3)"})
    expect_read(text("'<f4'", "False", shape));
  for (const char* descr :
       {"\"<f4\"", "'<' 'f4'", "u'=f4'", "r'''f4'''", "'\\x3cf\\64'", "('f')", "'float32'", "'f04'"})
    expect_read(text(descr));
  expect_read("(" + text() + ")");
  expect_read("\n# made by hand\n" + text() + " # end");
  // of two equal keys Python takes the last
  expect_read("{'shape': (2,3), 'descr': '<i2', 'descr': 'f4', 'fortran_order': False}");
  expect_refused(text("'<f4'", "False", "(2L, 3)"), errc::bad_file, 3);  // version 3 is younger than Python 2
}

TEST(NpyHeader, No_spelling_that_Python_refuses) {
  for (const char* shape : {"(6)",
                            "[2, 3]",
                            "(2, 3",
                            "2, 3)",
                            "(2,, 3)",
                            "(,)",
                            "(02, 3)",
                            "(2_, 3)",
                            "(2.0, 3)",
                            "(2e0, 3)",
                            "(True, 6)",
                            "(-2, -3)",
                            "(- -2, 3)",
                            "(~2, 3)",
                            "(1+1, 3)",
                            "(2, 3) or 1",
                            "(2, None)",
                            "(2, '3')",
                            "None",
                            "(2 3)",
                            "(0x, 3)",
                            "(2\x0b, 3)",
                            "(2,\xa0"
                            "3)",
                            "(2, 3l)",
                            "((2, 3),)",
                            "(2; 3)"})
    expect_refused(text("'<f4'", "False", shape));
  for (const char* order : {"0", "1", "None", "'False'", "false", "not True", "Falsey", "(True,)"})
    expect_refused(text("'<f4'", order));
  for (const char* all : {"", "{", "{}", "[]", "{'descr': '<f4'}", "{'descr': '<f4', 'shape': (2, 3)}", "None",
                          "'text'", "{'descr', 'shape'}"})
    expect_refused(all);
  expect_refused(text() + ",");
  expect_refused(text() + ";");
  expect_refused("\n " + text());
  expect_refused(text().substr(0, text().size() - 1) + "'extra': 1}");
  EXPECT_FALSE(parse(npy(text("'<f4"), data)));
  expect_refused(text() + std::string(1, '\0'));
  for (const char* descr : {"'\\x3'", "'\\N{LATIN SMALL LETTER F}4'", "'f4\n'", "'\\U00110000'"})
    expect_refused(text(descr));
}

TEST(NpyHeader, N1_TypesThatNoTensorHasAreNamedAsSuch) {
  for (const char* descr : {"'|O'",   "'|S5'",   "'<U3'",  "'<M8[ns]'",     "'>m8[D]'",
                            "'<f16'", "'<c16'",  "'<c32'", "'|V2'",         "'f4,f4'",
                            "'2f4'",  "'float'", "''",     "('<f4', (2,))", "[('a', '<i4'), ('b', '>f8')]",
                            "None",   "'f1'",    "'<f44'", "'<'",           "b'<f4'"})
    EXPECT_FALSE(parse(npy(text(descr), data))) << descr;
  for (const char* descr : {"'|O'", "'|S5'", "'<M8[ns]'", "'<f16'", "[('a', '<i4')]", "('<f4', (2,))"})
    expect_refused(text(descr), errc::unsupported_dtype);
}

TEST(NpyHeader, N2_WhatLiesBehindTheArrayIsNotLookedAt) {
  for (const std::string& tail : {std::string("x"), std::string(1000, '\0'), npy(text(), data)}) {
    const auto h = parse(npy(text(), data + tail));
    ASSERT_TRUE(h);
    EXPECT_EQ(h->data_bytes, 24u);
  }
  EXPECT_EQ(parse(npy(text(), data.substr(1))).error(), errc::bad_file) << "but all of it must be there";
}

TEST(NpyHeader, Sizes_that_no_file_has) {
  for (const char* shape :
       {"(4294967296, 4294967296)", "(2, 2305843009213693952)", "(18446744073709551617,)", "(0, 9223372036854775807)",
        "(0, 4611686018427387904)", "(4611686018427387904, 0)", "(7,)", "(9223372036854775807,)"})
    expect_refused(text("'<f4'", "False", shape));
  expect_refused(text("'<f4'", "False", "(" + std::string(200, '9') + ",)"));
  EXPECT_TRUE(parse(npy(text("'<f4'", "False", "(0, 2305843009213693951)"), "")));
  std::string many = "(";
  for (int i = 0; i < 64; ++i) many += "1, ";
  EXPECT_EQ(parse(npy(text("'<f4'", "False", many + ")"), data))->rank, 64);
  expect_refused(text("'<f4'", "False", many + "1)"));
}

TEST(NpyHeader, Lengths_are_limited_as_in_NumPy) {
  const auto padded = [](std::size_t characters, unsigned version, std::string_view character = " ") {
    std::string header = text() + " # ";
    while (characters > header.size()) header += " ";
    if (character != " ") {
      header.resize(text().size() + 3);
      for (std::size_t n = header.size(); n < characters; ++n) header += character;
    }
    return "\x93NUMPY" + std::string{static_cast<char>(version), '\0'} +
           test::little(header.size(), version == 1 ? 2 : 4) + header + data;
  };
  for (const unsigned version : {1u, 2u, 3u}) {
    EXPECT_TRUE(parse(padded(10'000, version))) << version;
    EXPECT_FALSE(parse(padded(10'001, version))) << version;
  }
  EXPECT_TRUE(parse(padded(10'000, 3, "\xf0\x9f\x98\x80")))
      << "in version 3 it is characters that count, of up to four bytes";
  EXPECT_FALSE(parse(padded(10'001, 3, "\xf0\x9f\x98\x80")));
  EXPECT_FALSE(parse(padded(100, 3, "\xff"))) << "and they are UTF-8";
  EXPECT_TRUE(parse(padded(100, 1, "\xff")));

  const std::string whole = npy(text(), data);
  for (std::size_t n = 0; n < whole.size(); ++n) EXPECT_FALSE(parse(std::string_view(whole).substr(0, n))) << n;
  EXPECT_FALSE(parse("\x93NUMPY\2" + std::string(1, '\0') + "\xff\xff\xff\xff" + whole));
  for (const char* version : {"\1\1", "\4", "\xff\xff"})
    EXPECT_FALSE(parse("\x93NUMPY" + std::string(version, 2) + whole.substr(8)));
}

TEST(NpyHeader, Brackets_nest_no_deeper_than_in_Python) {
  const auto nested = [](std::size_t n) { return text("'<f4'", std::string(n, '(') + "False" + std::string(n, ')')); };
  expect_read(nested(199));
  expect_refused(nested(200));
  expect_refused(std::string(4900, '(') + text() + std::string(4900, ')'));
  expect_refused(text("'<f4'", "False", std::string(9900, '(')));
  expect_refused(text("'<f4'", "False", "(" + std::string(9900, '-') + "1,)"));
}

}  // namespace npy_header_test
