#include <tensorpull/system/files.hpp>

#include "support/own_folder.hpp"
#include "support/results.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace positioned_file_test {

using namespace test;
namespace fs = std::filesystem;

class PositionedFile : public testing::Test {
 protected:
  PositionedFile() { std::ofstream(path) << "0123456789"; }
  static std::string read(const tp::positioned_file& file, std::uint64_t offset, std::size_t n) {
    std::string text(n, '?');
    const auto done = file.read_at(offset, std::as_writable_bytes(std::span(text)));
    return done ? text : std::string(to_string(done.error().code)) + " at " + std::to_string(done.error().at);
  }
  void refused(std::string_view name, int system) {
    const auto file = tp::positioned_file::open(name);
    ASSERT_EQ(code_of(file), tp::errc::io) << name;
    EXPECT_EQ(file.error().system, system) << name;
  }

  test::own_folder folder;
  fs::path directory = folder.path();
  std::string path = folder / "file";
};

TEST_F(PositionedFile, Reads_any_range) {
  const auto file = tp::positioned_file::open(path);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->size(), 10u);
  EXPECT_EQ(file->name().view(), "file");
  EXPECT_EQ(read(*file, 0, 10), "0123456789");
  EXPECT_EQ(read(*file, 9, 1), "9");
  EXPECT_EQ(read(*file, 3, 4), "3456");
  EXPECT_EQ(read(*file, 10, 0), "");
}

TEST_F(PositionedFile, Beyond_the_end_is_an_error_at_the_end) {
  const auto file = tp::positioned_file::open(path);
  ASSERT_TRUE(file);
  EXPECT_EQ(read(*file, 8, 3), "the operating system reported an error at 10");
  EXPECT_EQ(read(*file, 11, 1), "the operating system reported an error at 11");
  for (const std::uint64_t far : {~std::uint64_t{0}, std::uint64_t{1} << 63, (std::uint64_t{1} << 63) - 1}) {
    std::byte one{};
    EXPECT_FALSE(file->read_at(far, {&one, 1})) << far;
  }
}

TEST_F(PositionedFile, S8_AFileThatShrinksIsAnErrorAndNoSignal) {
  const auto file = tp::positioned_file::open(path);
  ASSERT_TRUE(file);
  fs::resize_file(path, 4);
  EXPECT_EQ(read(*file, 0, 4), "0123");
  EXPECT_EQ(read(*file, 2, 8), "the operating system reported an error at 4");
}

TEST_F(PositionedFile, Stays_the_file_that_was_opened) {
  const auto file = tp::positioned_file::open(path);
  ASSERT_TRUE(file);
  fs::remove(path);
  std::ofstream(path) << "another";
  EXPECT_EQ(read(*file, 0, 10), "0123456789");
}

TEST_F(PositionedFile, Follows_links_to_regular_files_and_refuses_all_else) {
  const std::string link = (directory / "link").string(), pipe = (directory / "pipe").string();
  fs::create_symlink("file", link);
  const auto file = tp::positioned_file::open(link);
  ASSERT_TRUE(file);
  EXPECT_EQ(read(*file, 0, 2), "01");
  refused(directory.string(), EISDIR);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  refused(pipe, EINVAL);
  refused("/dev/null", EINVAL);
  refused((directory / "nothing").string(), ENOENT);
  refused(path + "/x", ENOTDIR);
  refused(std::string(5000, 'x'), ENAMETOOLONG);
  fs::create_symlink("loop", directory / "loop");
  refused((directory / "loop").string(), ELOOP);
  for (const std::string& bad : {std::string(), std::string("a\0b", 3)})
    EXPECT_EQ(code_of(tp::positioned_file::open(bad)), tp::errc::invalid_argument);
}

}  // namespace positioned_file_test
