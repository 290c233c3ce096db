// A folder of its own, or an abstract name of its own, for each test of Unix sockets.
#pragma once

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace test {

class unix_folder : public testing::Test {
 protected:
  unix_folder() {
    std::string name = std::filesystem::temp_directory_path() / "tensorpull.XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~unix_folder() override { std::filesystem::remove_all(folder_); }

  const std::string& folder() const { return folder_; }
  std::string path() const { return folder_ + "/owner"; }
  std::size_t files() const {
    std::size_t n = 0;
    for ([[maybe_unused]] const auto& f : std::filesystem::directory_iterator(folder_)) ++n;
    return n;
  }

 private:
  std::string folder_;
};

/// A name that no other test uses.
inline std::string abstract_name() {
  static int count = 0;
  return "@tensorpull-test-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
}

}  // namespace test
