#include <tensorpull/satellites/numpy_files/detail/npy_reader.hpp>

#include "laid_out.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace npy_reader_test {

using test::laid_out;
using test::sample;

TEST(NpyReader, Every_range_of_every_layout_is_that_of_the_image) {
  for (const sample& s : {sample{{5}, 4, 0, false},
                          {{3, 4}, 4, 4, false},
                          {{3, 4}, 8, 4, false},
                          {{7}, 2, 2, false},
                          {{3, 4}, 1, 0, true},
                          {{4, 3}, 4, 0, true},
                          {{2, 3, 4}, 8, 8, true},
                          {{3, 1, 2, 2}, 8, 4, true},
                          {{1, 5}, 2, 2, true},
                          {{5, 1}, 2, 0, true},
                          {{2, 1, 2, 1, 3, 1, 2}, 1, 0, true}}) {
    laid_out array(s);
    for (std::size_t from = 0; from <= array.image.size(); ++from)
      for (std::size_t n = 0; n <= array.image.size() - from; ++n)
        ASSERT_EQ(array.read(from, n), array.image.substr(from, n))
            << from << " + " << n << ", rank " << s.shape.size() << ", " << int(s.element_bytes) << " bytes";
  }
}

TEST(NpyReader, Long_columns_and_many_of_them) {
  for (const sample& s : {sample{{5000, 3}, 4, 4, true}, {{3, 5000}, 4, 0, true}, {{70, 30, 9}, 8, 4, true}}) {
    laid_out array(s);
    for (const std::size_t step :
         {array.image.size(), std::size_t{64 * 1024}, std::size_t{4999}, std::size_t{65'533}}) {
      std::string all;
      while (all.size() < array.image.size())
        all += array.read(all.size(), std::min(step, array.image.size() - all.size()));
      ASSERT_TRUE(all == array.image) << step;
    }
  }
}

TEST(NpyReader, Reads_no_oftener_than_it_must) {
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

TEST(NpyReader, A_file_that_ends_early_is_an_error) {
  for (const bool fortran : {false, true}) {
    laid_out array(sample{{30, 40}, 4, 4, fortran});
    array.file.content.resize(array.file.content.size() - 1);
    EXPECT_EQ(array.read(0, array.image.size()), "failed");
    EXPECT_EQ(array.read(array.image.size() - 1, 1), "failed") << "also where only a part of the last number is wanted";
    EXPECT_EQ(array.read(0, 4), array.image.substr(0, 4));
  }
}

}  // namespace npy_reader_test
