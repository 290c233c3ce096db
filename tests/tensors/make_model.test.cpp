#include <tensorpull/tensors/make_model.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace make_model_test {

using namespace tensorpull;

template <std::size_t Bytes>
struct model {
  std::array<unsigned char, Bytes> bytes;
};

template <std::size_t Bytes>
void expect_zeros() {
  auto made = make_model<model<Bytes>>();
  ASSERT_TRUE(made);
  auto& bytes = (*made)->bytes;
  EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](unsigned char b) { return b == 0; }));
  std::memset(bytes.data(), 1, bytes.size());
  if (Bytes >= 4u << 20) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.data()) % (2u << 20), 0u);
  }
}

TEST(MakeModel, Is_zero_and_writable_in_every_size) {
  expect_zeros<1>();
  expect_zeros<(128u << 10) - 1>();
  expect_zeros<128u << 10>();
  expect_zeros<(4u << 20) - 1>();
  expect_zeros<4u << 20>();
  expect_zeros<(8u << 20) + 4097>();
}

#ifdef __linux__
std::size_t pages_mapped() {
  std::size_t pages = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%zu", &pages) != 1) pages = 0;
  if (file != nullptr) std::fclose(file);
  return pages;
}

TEST(MakeModel, Freeing_gives_everything_back) {
  (void)make_model<model<(9u << 20) + 1>>();
  const std::size_t before = pages_mapped();
  for (int i = 0; i < 100; ++i) {
    (void)make_model<model<(9u << 20) + 1>>();
    (void)make_model<model<200'000>>();
  }
  EXPECT_EQ(pages_mapped(), before);
  const auto held = make_model<model<(9u << 20) + 1>>();
  EXPECT_EQ(pages_mapped() - before, ((9u << 20) >> 12) + 1) << "no more than the model, rounded to a page";
}
#endif

struct initialised {
  int n = 7;
  unsigned char rest[300'000] = {1};
  static inline int destroyed = 0;
  ~initialised() { ++destroyed; }
};

TEST(MakeModel, Keeps_default_initialisers_and_runs_the_destructor) {
  {
    const auto made = make_model<initialised>();
    ASSERT_TRUE(made);
    EXPECT_EQ((*made)->n, 7);
    EXPECT_EQ((*made)->rest[0], 1);
  }
  EXPECT_EQ(initialised::destroyed, 1);
}

TEST(MakeModel, No_room_is_an_error) {
  EXPECT_EQ((make_model<model<(std::size_t{1} << 60)>>().error()), errc::out_of_memory);
}

}  // namespace make_model_test
