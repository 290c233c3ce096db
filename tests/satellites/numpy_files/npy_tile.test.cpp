#include <tensorpull/satellites/numpy_files/detail/npy_tile.hpp>

#include "laid_out.hpp"
#include "support/threads.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace npy_tile_test {

using tensorpull::detail::npy_tile;
using test::laid_out;
using test::sample;

std::string whole(laid_out& array, npy_tile& tile, std::size_t step) {
  std::string all;
  while (all.size() < array.image.size())
    all += array.read(tile, all.size(), std::min(step, array.image.size() - all.size()));
  return all;
}

TEST(NpyTile, Gives_the_image_of_each_array_that_shares_it) {
  npy_tile tile;
  // longer than a tile; shorter; with rows of which no two fit
  laid_out a(sample{{3000, 700}, 4, 4, true}), b(sample{{40, 3, 50}, 8, 0, true}), c(sample{{2, 600'000}, 8, 0, true});
  for (const laid_out* array : {&a, &b, &c}) tile.make_room(array->place);
  for (const std::size_t step : {std::size_t{65'536}, std::size_t{65'533}}) {
    EXPECT_TRUE(whole(a, tile, step) == a.image);
    EXPECT_TRUE(whole(b, tile, step) == b.image);
    EXPECT_TRUE(whole(c, tile, step) == c.image);
  }
  for (std::size_t i = 0; i < 20; ++i) {  // by turns
    laid_out& array = i % 2 == 0 ? a : b;
    const std::size_t at = i * 104'729 % (array.image.size() - 100);
    ASSERT_EQ(array.read(tile, at, 99), array.image.substr(at, 99));
  }
}

TEST(NpyTile, Reads_each_column_once_for_all_slices_of_its_rows) {
  npy_tile tile;
  laid_out array(sample{{500, 2000}, 4, 0, true});  // 4,000,000 bytes: all of it fits
  tile.make_room(array.place);
  EXPECT_TRUE(whole(array, tile, 64 * 1024) == array.image);
  EXPECT_EQ(array.file.reads, 2000u);
}

TEST(NpyTile, A_file_that_ends_early_is_an_error_each_time) {
  npy_tile tile;
  laid_out array(sample{{500, 2000}, 4, 0, true});
  tile.make_room(array.place);
  const std::string content = array.file.content;
  array.file.content.resize(content.size() / 2);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(array.read(tile, 0, 100), "failed");
  array.file.content = content;
  EXPECT_EQ(array.read(tile, 0, 100), array.image.substr(0, 100)) << "nothing is kept of what failed";
}

TEST(NpyTile, Threads_do_not_disturb_each_other) {
  npy_tile tile;
  laid_out array(sample{{3000, 700}, 4, 0, true});
  tile.make_room(array.place);
  struct uncounted {  // memory_file counts, which two threads may not
    const std::string& content;
    tensorpull::result<void> read_at(std::uint64_t offset, std::span<std::byte> out) const noexcept {
      std::memcpy(out.data(), content.data() + offset, out.size());
      return {};
    }
  };
  const uncounted file{array.file.content};
  std::vector<int> wrong(3);
  test::on_threads(wrong.size(), [&](std::size_t t) {
    std::string out(10'000, '?');
    for (std::size_t i = 0; i < 12; ++i) {
      const std::size_t at = (i * 3 + t) * 104'729 % (array.image.size() - out.size());
      wrong[t] += !tile.read(file, array.place, at, std::as_writable_bytes(std::span(out))) ||
                  array.image.compare(at, out.size(), out) != 0;
    }
  });
  EXPECT_EQ(wrong, std::vector<int>(3));
}

}  // namespace npy_tile_test
