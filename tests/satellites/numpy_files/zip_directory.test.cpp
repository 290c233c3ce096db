#include <tensorpull/satellites/numpy_files/detail/zip_directory.hpp>

#include "allocation_counter.hpp"
#include "support/results.hpp"
#include "zip_archive.hpp"

#include <gtest/gtest.h>

namespace zip_directory_test {

using namespace tensorpull;
using test::code_of;
using test::succeeded;
using test::zip;
using test::zip_end;
using test::zip_file;

result<std::vector<detail::zip_member>> read(const std::string& archive, std::size_t most = 1000) {
  const test::memory_file file{archive};
  return detail::zip_directory(file).read(most);
}
void expect_content(const std::string& archive, const std::vector<zip_file>& files) {
  const auto members = read(archive);
  ASSERT_TRUE(succeeded(members)) << " at " << members.error().at;
  ASSERT_EQ(members->size(), files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    const detail::zip_member& m = (*members)[i];
    EXPECT_EQ(m.name, files[i].name);
    EXPECT_EQ(archive.substr(m.offset, m.size), files[i].content);
    EXPECT_EQ(m.crc32, test::crc32_of(files[i].content));
  }
}
void expect_refused(const std::string& archive, errc why, const char* what) {
  const auto members = read(archive);
  EXPECT_EQ(code_of(members), why) << what;
}

TEST(ZipDirectory, Files_are_found_where_they_lie) {
  const std::vector<zip_file> files{
      {"a.npy", "first"}, {"../../etc/x.npy", ""}, {"notes.txt", std::string(70'000, 'n')}};
  expect_content(zip(files), files);
  expect_content(zip(files, {.comment = "a comment"}), files);
  expect_content(zip(files, {.comment = std::string(65'535, 'c')}), files);
  expect_content(zip(files, {.zip64 = true}), files);
  expect_content(zip(files, {}, "another program's bytes"), files);
  expect_content(zip(files, {.zip64 = true}, "another program's bytes"), files);
  expect_content(zip({}), {});
  auto wide = files;
  for (zip_file& f : wide) f.zip64 = true;
  expect_content(zip(wide), wide);
  auto with_fields = files;
  with_fields[0].header_extra = std::string(20, 'e');
  with_fields[1].extra = test::little(0x5455, 2) + test::little(3, 2) + "abc";
  with_fields[2].comment = "comment";
  expect_content(zip(with_fields), with_fields);
}

TEST(ZipDirectory, Names_are_utf_8_or_code_page_437_and_end_at_a_nul) {
  auto members = read(zip({{"\xe4\xb8\xad", "x", 0x800}}));
  ASSERT_TRUE(members);
  EXPECT_EQ(members->front().name, "\xe4\xb8\xad");
  members = read(zip({{"\x82\xe1\xb0", "x"}}));
  ASSERT_TRUE(members);
  EXPECT_EQ(members->front().name, "\xc3\xa9\xc3\x9f\xe2\x96\x91");
  members = read(zip({{std::string("a\0b", 3), "x"}}));
  ASSERT_TRUE(members);
  EXPECT_EQ(members->front().name, "a");
  expect_refused(zip({{"\xff", "x", 0x800}}), errc::bad_file, "a name that is not the UTF-8 that its flag promises");
}

TEST(ZipDirectory, What_lies_there_in_another_form) {
  expect_refused(zip({{"a", "x", 0, 12}}), errc::unsupported_layout, "packed by bzip2");
  const auto packed = read(zip({{"a", "x", 0, 8}, {"b", "y"}}));
  ASSERT_TRUE(packed);
  EXPECT_TRUE((*packed)[0].deflated && !(*packed)[1].deflated);
  for (const unsigned flag : {1u, 0x20u, 0x40u})
    expect_refused(zip({{"a", "x", flag}}), errc::unsupported_layout, "encrypted or patched");
  expect_refused(zip({{"a", "x", 0, 0, 64}}), errc::unsupported_layout, "a format that is younger than we");
  EXPECT_EQ(read(zip({{"weights", "x", 0, 12}})).error().name.view(), "weights");
}

TEST(ZipDirectory, Lies_are_found_out) {
  const zip_file a{"a", "first"}, b{"b", "second"};
  auto changed = a;
  changed.header_name = "c";
  expect_refused(zip({changed, b}), errc::bad_file, "another name in the file's own header");
  for (const std::int64_t by : {1, -1, 1000, -1000}) {
    changed = b;
    changed.moved = by;
    expect_refused(zip({a, changed}), errc::bad_file, "an offset where no header is");
    expect_refused(zip({a, b}, {.start_change = by}), errc::bad_file, "a directory elsewhere");
    expect_refused(zip({a, b}, {.length_change = by}), errc::bad_file, "a directory of another length");
    expect_refused(zip({a, b}, {.zip64 = true, .length_change = by}), errc::bad_file,
                   "a directory of another length, in ZIP64");
  }
  changed = b;
  changed.moved = -static_cast<std::int64_t>(30 + a.name.size() + a.content.size());
  changed.header_name = "a";
  changed.name = "a";
  expect_refused(zip({a, changed}), errc::bad_file, "two files in one place");
  changed = a;
  changed.size = changed.packed = 6;
  expect_refused(zip({changed, b}), errc::bad_file, "a file that reaches into the next");
  changed.size = changed.packed = 0xfffffffe;
  expect_refused(zip({b, changed}), errc::bad_file, "a file that reaches beyond the end");
  changed.zip64 = true;
  changed.size = changed.packed = ~std::uint64_t{0};
  expect_refused(zip({b, changed}), errc::bad_file, "a file of 2^64 - 1 bytes");
  changed = a;
  changed.size = 4;
  expect_refused(zip({changed}), errc::bad_file, "a stored file with two sizes");
  changed = a;
  changed.extra = test::little(1, 2) + test::little(9, 2) + "short";
  expect_refused(zip({changed}), errc::bad_file, "a field that is longer than its room");
  changed = a;
  changed.size = 0xffffffff;
  changed.extra = test::little(1, 2) + test::little(4, 2) + "four";
  expect_refused(zip({changed}), errc::bad_file, "a ZIP64 field without the size");
  std::string disks = zip({a}, {.zip64 = true});
  disks[disks.find("PK\6\7") + 16] = 2;
  expect_refused(disks, errc::bad_file, "several disks");
}

TEST(ZipDirectory, Every_cut_and_every_changed_byte_is_handled) {
  const std::string whole = zip({{"a.npy", "first"}, {"b.npy", "second"}}, {.zip64 = true});
  for (std::size_t n = 0; n < whole.size(); ++n) EXPECT_FALSE(read(whole.substr(0, n))) << n;
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (const int bit : {1, 8, 128}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ bit);
      const auto members = read(changed);
      if (!members) continue;
      for (const detail::zip_member& m : *members) {
        ASSERT_TRUE(range_within(m.offset, m.size, whole.size())) << at;
      }
    }
}

TEST(ZipDirectory, Nothing_is_allocated_that_the_archive_only_claims) {
  zip_file liar{"a", "x"};
  liar.zip64 = true;
  liar.size = liar.packed = 1ull << 60;
  std::string archive = zip({liar}, {.zip64 = true, .length_change = 1ll << 40});
  const std::string many = zip(std::vector<zip_file>(100, zip_file{"a", ""}));
  {
    const test::allocation_watch watch;
    EXPECT_FALSE(read(archive));
    EXPECT_LT(watch.largest(), 100'000u);
  }
  EXPECT_EQ(code_of(read(many, 99)), errc::too_many_tensors);
  EXPECT_TRUE(read(many, 100));
}

}  // namespace zip_directory_test
