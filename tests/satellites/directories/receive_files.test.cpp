// A directory of files that a program fetches itself: complete and compared, or not there; gone on with at a file's
// byte.
#include <tensorpull/satellites/directories/receive_files.hpp>

#include "trees.hpp"

#include "support/own_folder.hpp"
#include "support/results.hpp"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace receive_files_test {

using namespace test;
namespace fs = std::filesystem;
using tp::errc;

std::uint64_t digest_of(std::string_view text) {
  tp::xxh3_64 h;
  h.update(std::as_bytes(std::span(text)));
  return h.digest();
}

/// Where the files are, and what was asked of it.
class source {
 public:
  struct digest_of_file {
    tp::xxh3_64 hash{};
    std::uint64_t wanted;
    const std::function<void()>* held = nullptr;
    void update(std::span<const std::byte> bytes) { hash.update(bytes); }
    bool agrees() const {
      if (held != nullptr && *held) (*held)();
      return hash.digest() == wanted;
    }
  };

  explicit source(const tree& given) : files(given), stated(given) {}
  const std::vector<tp::listed_file>& list() {
    list_.clear(), paths_.clear();
    for (const auto& [path, text] : stated) paths_.push_back(path), list_.push_back({path, text.size()});
    // the order of a list means nothing
    std::reverse(list_.begin(), list_.end()), std::reverse(paths_.begin(), paths_.end());
    return list_;
  }
  digest_of_file digest(std::size_t i) const {
    return {.wanted = digest_of(stated.at(std::string(paths_[i]))), .held = &held};
  }
  tp::result<void> fetch(std::size_t i, std::uint64_t from, const tp::file_sink& take) {
    const std::string path(paths_[i]);
    asked.push_back(path + "@" + std::to_string(from));
    const std::string& text = files.at(path);
    for (std::size_t at = from; at < text.size(); at += 1000) {
      if (left == 0) return tp::failure(errc::connection_lost);
      --left;
      if (const auto ok = take(
              std::as_bytes(std::span(text).subspan(at).first(std::min<std::size_t>(1000, text.size() - at))));
          !ok)
        return ok;
    }
    return {};
  }

  tree files, stated;  // what is given, and what the list has
  std::vector<std::string> asked;
  std::function<void()> held;  // called when all bytes have been fed to a digest
  std::size_t left = ~std::size_t{0};  // pieces before the connection is lost

 private:
  std::vector<tp::listed_file> list_;
  std::vector<std::string_view> paths_;
};

class ReceiveFiles : public testing::Test {
  test::own_folder folder_;

 protected:
  tree files{{"a/b/c.txt", noise(3'500, 1)}, {"config.json", "{}"}, {"empty", ""}, {"model.bin", noise(70'000, 2)}};
  source from{files};
  fs::path here = folder_.path() / "here", part = folder_.path() / ".here.part";

  tp::result<tp::directory_receipt> receive(tp::directory_options how = {}, const tp::stop_token& stop = {}) {
    how.fsync = false;
    from.asked.clear();
    return tp::receive_files(from, from.list(), here.string(), how, stop);
  }
  void expect_error(errc code, std::string_view name, const tp::directory_options& how = {}) {
    const auto done = receive(how);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, code) << tp::to_string(done.error().code);
    EXPECT_EQ(done.error().name.view(), name);
    EXPECT_FALSE(fs::exists(here));
  }
};

TEST_F(ReceiveFiles, All_of_them_arrive_each_once) {
  std::uint64_t came = 0, first = ~std::uint64_t{0};
  const auto landed = [&](const tp::landed_range& r) {
    EXPECT_EQ(r.offset, came);
    EXPECT_EQ(r.total, 73'502u);
    first = std::min(first, r.offset), came += r.bytes;
  };
  const auto done = receive({.landed = landed});
  ASSERT_TRUE(done);
  EXPECT_EQ(read(here), files);
  EXPECT_FALSE(fs::exists(part));
  EXPECT_EQ(done->files, 4u);
  EXPECT_EQ(done->bytes, 73'502u);
  EXPECT_EQ(done->kept, 0u);
  EXPECT_EQ(came, 73'502u);
  EXPECT_EQ(done->last.outcome, tp::outcome::completed);
  EXPECT_EQ(from.asked, (std::vector<std::string>{"a/b/c.txt@0", "config.json@0", "model.bin@0"}));
}

TEST_F(ReceiveFiles, A_later_call_goes_on_at_the_byte_of_a_file) {
  from.left = 40;
  const auto lost = receive();
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, errc::connection_lost);
  EXPECT_FALSE(fs::exists(here));
  from.left = ~std::size_t{0};
  const auto done = receive();
  ASSERT_TRUE(done);
  EXPECT_EQ(read(here), files);
  EXPECT_EQ(from.asked, (std::vector<std::string>{"model.bin@35000"}));
  EXPECT_EQ(done->kept, 3'502u + 35'000u);
}

TEST_F(ReceiveFiles, Bytes_of_another_version_in_the_part_are_fetched_anew) {
  from.left = 40;
  ASSERT_FALSE(receive());
  from.left = ~std::size_t{0};
  files["model.bin"] = noise(70'000, 3), files["config.json"] = "[]";
  from = source(files);
  std::uint64_t came = 0, last = 0;
  const auto landed = [&](const tp::landed_range& r) { came += r.bytes, last = r.offset + r.bytes; };
  const auto done = receive({.landed = landed});
  ASSERT_TRUE(done);
  EXPECT_EQ(read(here), files);
  EXPECT_EQ(from.asked, (std::vector<std::string>{"config.json@0", "model.bin@35000", "model.bin@0"}));
  EXPECT_EQ(done->kept, 3'500u);
  EXPECT_EQ(came, 2u + 35'000u + 70'000u);
  EXPECT_EQ(last, done->bytes);
}

TEST_F(ReceiveFiles, Other_bytes_than_those_of_the_digest_have_no_name) {
  from.files["model.bin"][69'999] ^= 1;
  expect_error(errc::digest_mismatch, "model.bin");
  EXPECT_TRUE(fs::exists(part)) << "the others are right";
  expect_error(errc::digest_mismatch, "model.bin");
  EXPECT_EQ(from.asked, (std::vector<std::string>{"model.bin@0"}));
  from.files = files;
  ASSERT_TRUE(receive());
  EXPECT_EQ(read(here), files);
}

TEST_F(ReceiveFiles, More_bytes_and_fewer_than_the_list_says_are_refused) {
  from.files["model.bin"] += "x";
  expect_error(errc::wrong_payload, "model.bin");
  fs::remove_all(part);
  from.files["model.bin"].resize(69'999);
  expect_error(errc::connection_lost, "model.bin");
}

TEST_F(ReceiveFiles, An_empty_file_is_compared_too) {
  struct liar : source {
    using source::source;
    digest_of_file digest(std::size_t) const { return {.wanted = 1}; }
  } lies(tree{{"empty", ""}});
  const auto done = tp::receive_files(lies, lies.list(), here.string(), {.fsync = false});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, errc::digest_mismatch);
  EXPECT_FALSE(fs::exists(here));
}

TEST_F(ReceiveFiles, A_base_gives_what_it_has) {
  ASSERT_TRUE(receive());
  files["config.json"] = "[]";
  from = source(files);
  const auto done = receive({.base = here.native(), .overwrite = true});
  ASSERT_TRUE(done);
  EXPECT_EQ(read(here), files);
  EXPECT_EQ(from.asked, (std::vector<std::string>{"config.json@0"}));
  EXPECT_EQ(done->kept, 73'500u);
  const auto none = receive({.base = "/none", .overwrite = true});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, errc::io);
}

TEST_F(ReceiveFiles, A_base_that_changes_while_it_is_copied_is_found) {
  files = {{"model.bin", files["model.bin"]}};
  from = source(files);
  ASSERT_TRUE(receive());
  from.held = [&] { std::ofstream(here / "model.bin", std::ios::binary) << noise(70'000, 9); };
  const fs::path other = here.string() + "-2";
  const auto done = tp::receive_files(from, from.list(), other.string(), {.base = here.native(), .fsync = false});
  ASSERT_TRUE(done);
  EXPECT_EQ(read(other), files);
}

TEST_F(ReceiveFiles, Some_of_them_may_be_chosen) {
  const std::string_view some[]{"*.json", "*.bin"}, not_these[]{"model*"};
  ASSERT_TRUE(receive({.files = {some, not_these}}));
  EXPECT_EQ(read(here), (tree{{"config.json", "{}"}}));
  fs::remove_all(here);
  const std::string_view none[]{"*.none"};
  expect_error(errc::invalid_argument, tp::error_name(std::string_view(here.native())).view(), {.files = {none, {}}});
}

TEST_F(ReceiveFiles, Names_that_lead_elsewhere_or_are_one_are_refused_and_too_much_is) {
  for (const std::string name : {"../x", "/x", "a/../x", "a//x", "x\\y", "."}) {
    from.stated = files, from.stated[name] = "x";
    expect_error(errc::invalid_argument, name);
  }
  from.stated = files, from.stated["CONFIG.json"] = "x";
  const auto two = receive();
  ASSERT_FALSE(two);
  EXPECT_EQ(two.error().code, errc::duplicate_name);
  from.stated = files;
  const std::string name(tp::error_name(std::string_view(here.native())).view());
  expect_error(errc::too_large, name, {.max_bytes = 73'501});
  expect_error(errc::too_large, name, {.max_files = 3});
  EXPECT_TRUE(from.asked.empty());
  EXPECT_FALSE(fs::exists(part)) << "nothing had arrived";
}

TEST_F(ReceiveFiles, What_is_there_is_compared_until_it_is_told_to_end) {
  ASSERT_TRUE(receive());
  std::stop_source stop;
  stop.request_stop();
  const auto done = receive({.base = here.native(), .overwrite = true}, stop.get_token());
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, errc::cancelled);
  EXPECT_EQ(read(here), files);
}

}  // namespace receive_files_test
