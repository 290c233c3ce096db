// Every file of the corpora through its target, without a fuzzer.
#include "fuzz/target.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

namespace corpus_test {

using namespace test::fuzz;

/// In memory of exactly its size, so that a sanitizer sees what reads behind it.
struct content {
  std::size_t size;
  std::unique_ptr<std::byte[]> bytes;

  explicit content(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    const std::string all{std::istreambuf_iterator<char>(in), {}};
    size = all.size();
    bytes.reset(new std::byte[size]);
    std::memcpy(bytes.get(), all.data(), size);
  }
  input view() const { return {bytes.get(), size}; }
};

std::vector<std::filesystem::path> files_of(const target& t) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(t.corpus())) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

class Corpus : public testing::TestWithParam<target> {};

TEST_P(Corpus, Every_file_keeps_the_invariants) {
  const auto files = files_of(GetParam());
  EXPECT_FALSE(files.empty());
  for (const auto& file : files) {
    unsigned reached = 0;
    try {
      reached = GetParam().run(content(file).view());
    } catch (const std::exception& e) {
      ADD_FAILURE() << file << ": " << e.what();
      continue;
    }
    unsigned least = GetParam().name == "replies" ? 1000 : 1;
    if (!file.filename().string().starts_with("valid-")) least = 0;
    EXPECT_GE(reached, least) << file
                              << " is not what the library says now: make the seeds anew (tests/fuzz/README.md)";
  }
}

TEST_P(Corpus, Files_cut_short_and_with_bytes_changed_keep_them_too) {
  for (const auto& file : files_of(GetParam())) {
    const content c(file);
    try {
      for (std::size_t n = 0; n < c.size; n += 1 + c.size / 40) {
        std::vector<std::byte> part(c.view().begin(), c.view().begin() + static_cast<std::ptrdiff_t>(n));
        GetParam().run(part);
      }
      for (std::size_t i = 0; i < c.size; i += 1 + c.size / 60) {
        std::vector<std::byte> changed(c.view().begin(), c.view().end());
        changed[i] ^= static_cast<std::byte>(1u << (i % 8));
        GetParam().run(changed);
      }
    } catch (const std::exception& e) {
      ADD_FAILURE() << file << ": " << e.what();
    }
  }
}

std::size_t no_change(std::uint8_t*, std::size_t size, std::size_t) { return size; }

TEST_P(Corpus, A_thousand_mutations_of_frames_keep_them_too) {
  if (!GetParam().of_frames) return;
  const auto files = files_of(GetParam());
  for (std::uint32_t round = 0; round < 1000; ++round) {
    const auto& file = files[round % files.size()];
    const content c(file);
    std::vector<std::byte> room(c.size + 512);
    std::memcpy(room.data(), c.bytes.get(), c.size);
    std::size_t size = c.size;
    for (std::uint32_t k = 0; k <= round % 4; ++k)
      size = mutate_frames(room, size, GetParam().settings, round * 4 + k, no_change);
    ASSERT_LE(size, room.size());
    room.resize(size);
    try {
      GetParam().run(room);
    } catch (const std::exception& e) {
      ADD_FAILURE() << file << ", round " << round << ": " << e.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Corpus, testing::ValuesIn(targets()),
                         [](const auto& which) { return std::string(which.param.name); });

}  // namespace corpus_test
