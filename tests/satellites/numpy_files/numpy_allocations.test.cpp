// Q1: every allocation of opening an npy or npz file fails once: the verdict is then out_of_memory, and nothing is
// kept.
#include "support/allocation_counter.hpp"
#include "support/safetensors_text.hpp"
#include "support/zip_archive.hpp"

#include <tensorpull/satellites/numpy_files/numpy_file.hpp>
#include <tensorpull/testing/failing_allocation.hpp>

namespace numpy_files_test {

namespace tp = tensorpull;
using tp::errc;

class NumpyFilesShortOfMemory : public test::folder_test {
 protected:
  void fail_each(const std::string& content, errc verdict) {
    put(content);
    const auto open = [&] {
      const auto file = tp::numpy_file::open(path);
      return file ? errc{} : file.error().code;
    };
    (void)open();
    for (std::uint64_t nth = 1;; ++nth) {
      ASSERT_LT(nth, 1000u);
      const test::live_heap before = test::heap_now();
      errc code{};
      bool happened = false;
      {
        const tp::testing::failing_allocation fails(nth);
        code = open();
        happened = fails.happened();
      }
      EXPECT_EQ(test::heap_now(), before) << nth;
      if (!happened) {
        EXPECT_EQ(code, verdict);
        EXPECT_GT(nth, 1u);
        return;
      }
      EXPECT_EQ(code, errc::out_of_memory) << nth;
    }
  }
};

TEST_F(NumpyFilesShortOfMemory, Q1_opening_a_file_that_is_valid_or_not) {
  const std::string rows = test::npy(">f8", "(2, 3)", true, std::string(48, 'x')),
                    flat = test::npy("|u1", "(6,)", false, "123456");
  const std::string name(300, 'n');
  fail_each(rows, {});
  fail_each(test::zip({{name + ".npy", rows}, {"b.npy", flat}, {"notes.txt", "none"}}, {.comment = "c"}), {});
  fail_each(test::zip({{name + ".npy", rows}, {name, flat}}), errc::duplicate_name);
  fail_each(test::zip({{name + ".npy", flat}, {"b.npy", test::npy("|O", "(1,)", false, "")}}), errc::unsupported_dtype);
  fail_each(test::zip({{name + ".npy", flat}, {"b.npy", "none"}}), errc::bad_file);
}

}  // namespace numpy_files_test
