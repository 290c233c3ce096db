// A file that is compared with what is published: complete, changed, of another length, or gone while it is looked at.
#include "../support/models.hpp"
#include "../support/own_folder.hpp"

#include <tensorpull/consumers/any_schema/finished_file.hpp>
#include <tensorpull/tensorpull.hpp>

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace finished_file_test {

using namespace test;
using net = tp::pipeline<tp::tensor_list, tp::fixed_bytes<4096>, tp::loopback>;
constexpr tp::ref_id name{1, 2};

class FinishedFile : public testing::Test {
 protected:
  FinishedFile() { source.add("w", dtype::f32, {100, 100}).ready().fill(1); }
  ~FinishedFile() override { std::filesystem::remove(path); }

  void write(const byte_vector& bytes) const {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  tp::result<tp::receipt> compare() {
    auto file = tp::positioned_file::open(path);
    EXPECT_TRUE(file);
    tp::finished_file there(std::move(*file));
    auto where = tp::finished_file::look(there, name);
    EXPECT_TRUE(where);
    if (before_pull) before_pull();
    return net::pull(*owner, {name, 0, 0}, there, {.cursor = &*where});
  }

  own_folder folder;
  std::string path = folder / "model";
  model source;
  std::unique_ptr<net::downloader> owner = std::make_unique<net::downloader>();
  std::function<void()> before_pull;
};

TEST_F(FinishedFile, That_is_what_is_published_costs_one_byte_and_is_confirmed) {
  ASSERT_TRUE(owner->add_image(source.source(), {.recipients = 1, .id = name}));
  write(source.image_bytes());
  const auto done = compare();
  ASSERT_TRUE(confirmed(done));
  EXPECT_EQ(owner->settlement_of({name, 0, 0})->counts.bytes_sent, 1u);
  EXPECT_EQ(owner->settlement_of({name, 0, 0})->verdict, tp::verdict::completed);
}

TEST_F(FinishedFile, That_is_something_else_is_stale) {
  ASSERT_TRUE(owner->add_image(source.source(), {.id = name}));
  auto bytes = source.image_bytes();
  bytes[500] ^= std::byte{1};
  write(bytes);
  EXPECT_EQ(code_of(compare()), errc::stale_version);
  bytes = source.image_bytes();
  bytes.push_back({});
  write(bytes);
  EXPECT_EQ(code_of(compare()), errc::stale_version);
  bytes.resize(100);
  write(bytes);
  EXPECT_EQ(code_of(compare()), errc::stale_version);
}

TEST_F(FinishedFile, That_changes_after_it_was_looked_at_is_not_called_complete) {
  ASSERT_TRUE(owner->add_image(source.source(), {.id = name}));
  write(source.image_bytes());
  before_pull = [this] {
    std::fstream f(path, std::ios::binary | std::ios::in | std::ios::out);
    f.seekp(700);
    f.put('x');
  };
  EXPECT_FALSE(compare());
  auto cut = [this] { std::filesystem::resize_file(path, 10); };
  write(source.image_bytes());
  before_pull = cut;
  EXPECT_FALSE(compare());
}

}  // namespace finished_file_test
