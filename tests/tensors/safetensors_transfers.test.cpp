// Safetensors files as the source of transfers: into structs, into files, larger than memory, and changed while they
// are published.
#include "support/allocation_counter.hpp"
#include "support/child_process.hpp"
#include "support/process_entries.hpp"
#include "support/results.hpp"
#include "support/safetensors_text.hpp"

#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/tensorpull.hpp>
#include <tensorpull/tensors/safetensors/safetensors.hpp>

#include <sys/resource.h>

#include <cstring>
#include <functional>
#include <memory>

namespace test {

struct head {
  float weight[2][3], bias[2];
};
struct classifier {
  head output;
};

}  // namespace test

BOOST_HANA_ADAPT_STRUCT(test::head, weight, bias);
BOOST_HANA_ADAPT_STRUCT(test::classifier, output);

namespace safetensors_transfers_test {

namespace tp = tensorpull;
using namespace test;
using tp::operator""_KiB;
using tp::operator""_MiB;

using net = tp::pipeline<tp::safetensors_tensors, tp::fixed_bytes<4_KiB>, tp::loopback>;

std::string floats(float first, std::size_t n) {
  std::string s;
  for (std::size_t i = 0; i < n; ++i) {
    const float value = first + static_cast<float>(i);
    s.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return s;
}

class SafetensorsTransfers : public folder_test {
 protected:
  tp::safetensors_image published(std::string_view text, std::string_view data) const {
    put(safetensors_file_of(text, data));
    auto image = tp::safetensors_image::open(path);
    EXPECT_TRUE(image);
    return std::move(*image);
  }
  std::string copy() const { return (directory / "copy.safetensors").string(); }
};

TEST_F(SafetensorsTransfers, A_struct_pulls_from_a_file_of_torchs_names) {
  // as save_file writes a Sequential's state dict with {"format": "pt"}: another order, and names that no member can
  // have
  const std::string tensors = entry("2.bias", "F32", "2", 24, 32) + "," + entry("2.weight", "F32", "2,3", 0, 24);
  const auto image = published("{\"__metadata__\":{\"format\":\"pt\"}," + tensors + "}", floats(1, 6) + floats(70, 2));
  using model = tp::renamed<classifier, tp::from_to{"output", "2"}>;
  using device = tp::pipeline<tp::raw_tensors<model>, tp::fixed_bytes<16>, tp::loopback>;
  const auto owner = std::make_unique<net::downloader>();
  const auto ref = owner->add_tensors(image);
  ASSERT_TRUE(ref);
  classifier mine{};
  const auto done = device::download_tensors(*owner, *ref, mine);
  ASSERT_TRUE(completed(done));
  EXPECT_EQ(mine.output.weight[1][2], 6.0f);
  EXPECT_EQ(mine.output.bias[1], 71.0f);
}

TEST_F(SafetensorsTransfers, A_head_is_pulled_from_a_larger_file_either_way) {
  put(safetensors_file_of("{" + entry("backbone.w", "F32", "100", 0, 400) + "," +
                              entry("output.weight", "F32", "2,3", 400, 424) + "," +
                              entry("output.bias", "F32", "2", 424, 432) + "}",
                          floats(500, 100) + floats(1, 6) + floats(70, 2)));
  using device = tp::pipeline<tp::raw_tensors<classifier>, tp::fixed_bytes<16>, tp::loopback>;
  const auto owner = std::make_unique<net::downloader>();
  const auto whole = tp::safetensors_image::open(path);
  const auto part = tp::safetensors_image::open(path,
                                                [](std::string_view name) { return name.starts_with("output."); });
  ASSERT_TRUE(whole && part);
  const std::array<std::string_view, 2> names{"output.weight", "output.bias"};
  for (const bool owner_chooses : {true, false}) {
    const auto ref = owner->add_tensors(owner_chooses ? *part : *whole);
    ASSERT_TRUE(ref);
    classifier mine{};
    tp::pull_options options;
    if (!owner_chooses) options.tensors = names;
    const auto done = device::download_tensors(*owner, *ref, mine, options);
    ASSERT_TRUE(succeeded(done));
    EXPECT_EQ(mine.output.weight[0][0], 1.0f);
    EXPECT_EQ(mine.output.bias[1], 71.0f);
  }
}

TEST_F(SafetensorsTransfers, A_kept_file_is_closed_when_its_reference_is_withdrawn) {
  const auto before = descriptors();
  const auto owner = std::make_unique<net::downloader>();
  const auto ref = owner->add_tensors(published("{" + entry("a", "U8", "4", 0, 4) + "}", "abcd"));
  ASSERT_TRUE(ref);
  EXPECT_EQ(descriptors(), before + 1);
  auto file = tp::safetensors_file::create(copy());
  ASSERT_TRUE(file);
  ASSERT_TRUE(net::pull(*owner, *ref, *file));
  EXPECT_TRUE(text_of(copy()).ends_with("abcd"));
  ASSERT_TRUE(owner->withdraw(*ref));
  EXPECT_EQ(descriptors(), before);
}

TEST_F(SafetensorsTransfers, S8_AFileThatShrinksBeforeAndWhileItIsPublished) {
  const std::string text = "{" + entry("a", "U8", "100000", 0, 100000) + "}", data = repeated("0123456789", 10000);
  const auto owner = std::make_unique<net::downloader>();
  {
    const auto image = published(text, data);
    std::filesystem::resize_file(path, 50000);
    EXPECT_EQ(code_of(owner->add_tensors(image)), errc::io) << "nothing is published that cannot be read";
  }
  const auto image = published(text, data);
  const auto ref = owner->add_tensors(image);
  ASSERT_TRUE(ref);
  auto file = tp::safetensors_file::create(copy());
  ASSERT_TRUE(file);
  std::filesystem::resize_file(path, 50000);
  const auto done = net::pull(*owner, *ref, *file);
  ASSERT_FALSE(done);
  EXPECT_TRUE(done.error() == errc::unreadable || done.error() == errc::connection_lost)
      << to_string(done.error().code);
  EXPECT_FALSE(std::filesystem::exists(copy()));
  file = tp::safetensors_file::create(copy());
  ASSERT_TRUE(file);
  EXPECT_EQ(code_of(net::pull(*owner, *ref, *file)), errc::unreadable);
}

TEST_F(SafetensorsTransfers, A_file_that_is_written_to_is_a_digest_that_differs) {
  const auto owner = std::make_unique<net::downloader>();
  const auto image = published("{" + entry("a", "U8", "10000", 0, 10000) + "}", repeated("0123456789", 1000));
  const auto ref = owner->add_tensors(image);
  ASSERT_TRUE(ref);
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out).seekp(5000) << 'x';
  auto file = tp::safetensors_file::create(copy());
  ASSERT_TRUE(file);
  EXPECT_EQ(code_of(net::pull(*owner, *ref, *file)), errc::digest_mismatch);
  EXPECT_FALSE(std::filesystem::exists(copy()));
}

TEST_F(SafetensorsTransfers, S10_NamesOfTensorsAreNoNamesOfFiles) {
  const auto owner = std::make_unique<net::downloader>();
  const std::string tensors = entry("../../x", "U8", "1", 0, 1) + "," + entry("/etc/x", "U8", "1", 1, 2) + "," +
                              entry("\\u0000", "U8", "1", 2, 3);
  const auto image = published("{" + tensors + "}", "abc");
  const auto ref = owner->add_tensors(image);
  ASSERT_TRUE(ref);
  std::filesystem::create_directories(directory / "a" / "b");
  auto file = tp::safetensors_file::create((directory / "a" / "b" / "pulled").string());
  ASSERT_TRUE(file);
  ASSERT_TRUE(net::pull(*owner, *ref, *file));
  std::size_t entries = 0;
  for (const auto& each : std::filesystem::recursive_directory_iterator(directory)) entries += each.is_regular_file();
  EXPECT_EQ(entries, 2u) << "the file that is published and the one that was pulled";
  EXPECT_TRUE(tp::safetensors_image::open((directory / "a" / "b" / "pulled").string()));
}

TEST_F(SafetensorsTransfers, A_file_larger_than_memory_is_published_and_pulled_into_another) {
  using large_net = tp::pipeline<tp::safetensors_tensors, tp::fixed_bytes<2_MiB>, tp::loopback>;
  constexpr std::uint64_t bytes = 256_MiB;
  put(safetensors_file_of("{" + entry("a", "U8", std::to_string(bytes / 2), bytes / 2, bytes) + "," +
                          entry("b", "F32", std::to_string(bytes / 8), 0, bytes / 2) + "}"));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) + bytes);
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out).seekp(-1, std::ios::end) << 'x';
  const int how = in_a_process([&] {
#if !defined(TENSORPULL_TEST_SANITIZED)  // which reserve terabytes
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlimit most{pages * 4096 + 32_MiB, pages * 4096 + 32_MiB};
    ::setrlimit(RLIMIT_AS, &most);
#endif
    const auto owner = std::make_unique<large_net::downloader>();
    const auto image = tp::safetensors_image::open(path);
    if (!image) return 1;
    const auto ref = owner->add_tensors(*image);
    if (!ref) return 2;
    auto file = tp::safetensors_file::create(copy(), {.fsync = false});
    return file && large_net::pull(*owner, *ref, *file) ? 0 : 3;
  });
  EXPECT_EQ(how, 0);
  const auto pulled = tp::safetensors_image::open(copy());
  ASSERT_TRUE(pulled);
  EXPECT_EQ(pulled->schema().tensors[0].name, "b") << "F32 before U8";
  std::byte last{};
  ASSERT_TRUE(pulled->file().read_at(pulled->file().size() - 1, {&last, 1}));
  EXPECT_EQ(last, std::byte{'x'});
}

}  // namespace safetensors_transfers_test
