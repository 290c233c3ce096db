// Q1: every allocation of opening a safetensors file, and of a pull that another process can go on with, fails once.
#include "support/allocation_counter.hpp"
#include "support/safetensors_text.hpp"

#include <tensorpull/consumers/any_schema/safetensors_file.hpp>
#include <tensorpull/tensors/safetensors/safetensors.hpp>
#include <tensorpull/testing/failing_allocation.hpp>

namespace files_test {

namespace tp = tensorpull;
using namespace test;
using tp::errc;

class FilesShortOfMemory : public folder_test {
 protected:
  /// How many allocations it took, each of which has failed once: the verdict is then out_of_memory, and nothing is
  /// kept.
  template <class Open>
  void fail_each(Open open, errc verdict) {
    (void)open();
    for (std::uint64_t nth = 1;; ++nth) {
      ASSERT_LT(nth, 1000u);
      const live_heap before = heap_now();
      errc code{};
      bool happened = false;
      {
        const tp::testing::failing_allocation fails(nth);
        code = open();
        happened = fails.happened();
      }
      const live_heap after = heap_now();
      EXPECT_EQ(after.blocks, before.blocks) << nth;
      EXPECT_EQ(after.bytes, before.bytes) << nth;
      if (!happened) {
        EXPECT_EQ(code, verdict);
        EXPECT_GT(nth, 1u);
        return;
      }
      EXPECT_EQ(code, errc::out_of_memory) << nth;
    }
  }
};

TEST_F(FilesShortOfMemory, Q1_opening_a_file_that_is_valid_or_not) {
  const auto open = [&] {
    const auto image = tp::safetensors_image::open(path);
    return image ? errc{} : image.error().code;
  };
  const std::string name(300, 'n');
  const std::string valid = "{\"__metadata__\":{\"" + name + "\":\"" + name + "\"}," +
                            entry(name, "U8", "1,1,1,1,1", 0, 1, ",\"x\":[[[[1.5,\"" + name + "\"]]]]");
  put(safetensors_file_of(valid + "}", "x"));
  fail_each(open, {});
  put(safetensors_file_of(valid + "," + entry(name, "F32", "0", 0, 0) + "}", "x"));
  fail_each(open, errc::duplicate_name);
  put(safetensors_file_of(valid + ",\"" + name + "\xff\":1}", "x"));
  fail_each(open, errc::bad_file);
  put(safetensors_file_of(valid + ",\"y\":1e999}", "x"));
  fail_each(open, errc::bad_file);
}

TEST_F(FilesShortOfMemory, Q1_a_file_to_go_on_with) {
  tp::resume_cursor cursor;
  fail_each(
      [&] {
        const auto file = tp::safetensors_file::create(path, {.resume = &cursor});
        return file ? errc{} : file.error().code;
      },
      {});
  EXPECT_TRUE(std::filesystem::is_empty(directory));
}

}  // namespace files_test
