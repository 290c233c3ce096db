// A folder of its own for each test of Unix sockets.
#pragma once

#include "support/own_folder.hpp"

#include <gtest/gtest.h>

namespace test {

class unix_folder : public testing::Test {
 protected:
  const std::string& folder() const { return folder_.path().native(); }
  std::string path() const { return folder_ / "owner"; }
  std::size_t files() const {
    std::size_t n = 0;
    for ([[maybe_unused]] const auto& f : std::filesystem::directory_iterator(folder_.path())) ++n;
    return n;
  }

 private:
  own_folder folder_;
};

}  // namespace test
