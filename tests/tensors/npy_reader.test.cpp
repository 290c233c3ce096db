#include <tensorpull/tensors/npy_reader.hpp>

#include "memory_file.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace {

using namespace tensorpull;

struct sample {
  std::vector<std::uint64_t> shape;
  std::uint8_t element_bytes, swap_bytes;
  bool fortran;
};

/// The file of an array whose element number i (in C's order) consists of the bytes 16 i, 16 i + 1, ... (modulo 251); and its image.
struct laid_out {
  sample s;
  test::memory_file file{};
  std::string image{};
  detail::npy_place place{};

  explicit laid_out(const sample& given) : s(given) {
    std::uint64_t elements = 1;
    for (const auto n : s.shape) elements *= n;
    file.content.assign(7 + elements * s.element_bytes, '\0');
    for (std::uint64_t i = 0; i < elements; ++i) {
      std::uint64_t at = i, stride = 1, rest = i;
      if (s.fortran) {
        at = 0;
        std::vector<std::uint64_t> index(s.shape.size());
        for (std::size_t d = s.shape.size(); d-- > 0; rest /= s.shape[d]) index[d] = rest % s.shape[d];
        for (std::size_t d = 0; d < s.shape.size(); stride *= s.shape[d++]) at += index[d] * stride;
      }
      for (std::uint64_t b = 0; b < s.element_bytes; ++b) {
        const char byte = static_cast<char>((16 * i + b) % 251);
        image += byte;
        const std::uint64_t in_number = s.swap_bytes == 0 ? b : b - b % s.swap_bytes + s.swap_bytes - 1 - b % s.swap_bytes;
        file.content[7 + at * s.element_bytes + in_number] = byte;
      }
    }
    place = {7, s.element_bytes, s.swap_bytes, s.fortran ? static_cast<std::uint8_t>(s.shape.size()) : std::uint8_t{0}, s.shape.data()};
  }
  std::string read(std::uint64_t offset, std::size_t n) {
    std::string out(n, '?');
    const auto done = detail::npy_reader(file, place).read(offset, std::as_writable_bytes(std::span(out)));
    return done ? out : "failed";
  }
};

TEST(NpyReader, EveryRangeOfEveryLayoutIsThatOfTheImage) {
  for (const sample& s : {sample{{5}, 4, 0, false}, {{3, 4}, 4, 4, false}, {{3, 4}, 8, 4, false}, {{7}, 2, 2, false}, {{3, 4}, 1, 0, true}, {{4, 3}, 4, 0, true},
                          {{2, 3, 4}, 8, 8, true}, {{3, 1, 2, 2}, 8, 4, true}, {{1, 5}, 2, 2, true}, {{5, 1}, 2, 0, true}, {{2, 1, 2, 1, 3, 1, 2}, 1, 0, true}}) {
    laid_out array(s);
    for (std::size_t from = 0; from <= array.image.size(); ++from)
      for (std::size_t n = 0; n <= array.image.size() - from; ++n)
        ASSERT_EQ(array.read(from, n), array.image.substr(from, n)) << from << " + " << n << ", rank " << s.shape.size() << ", " << int(s.element_bytes) << " bytes";
  }
}

TEST(NpyReader, LongColumnsAndManyOfThem) {
  for (const sample& s : {sample{{5000, 3}, 4, 4, true}, {{3, 5000}, 4, 0, true}, {{70, 30, 9}, 8, 4, true}}) {
    laid_out array(s);
    for (const std::size_t step : {array.image.size(), std::size_t{64 * 1024}, std::size_t{4999}, std::size_t{65'533}}) {
      std::string all;
      while (all.size() < array.image.size()) all += array.read(all.size(), std::min(step, array.image.size() - all.size()));
      ASSERT_TRUE(all == array.image) << step;
    }
  }
}

TEST(NpyReader, ReadsNoOftenerThanItMust) {
  laid_out row(sample{{10'000}, 4, 4, false});
  row.read(0, 40'000);
  EXPECT_EQ(row.file.reads, 1u) << "in C's order, one read";
  laid_out columns(sample{{1000, 50}, 4, 0, true});
  columns.read(0, 50'000 * 4 / 4);
  EXPECT_EQ(columns.file.reads, 50u) << "in Fortran's order, one for each column";
  columns.file.reads = 0;
  columns.read(4 * 25, 4 * 10);
  EXPECT_EQ(columns.file.reads, 10u) << "and only for those that it meets";
}

TEST(NpyReader, AFileThatEndsEarlyIsAnError) {
  for (const bool fortran : {false, true}) {
    laid_out array(sample{{30, 40}, 4, 4, fortran});
    array.file.content.resize(array.file.content.size() - 1);
    EXPECT_EQ(array.read(0, array.image.size()), "failed");
    EXPECT_EQ(array.read(array.image.size() - 1, 1), "failed") << "also where only a part of the last number is wanted";
    EXPECT_EQ(array.read(0, 4), array.image.substr(0, 4));
  }
}

}  // namespace
