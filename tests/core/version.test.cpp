#include <tensorpull/core/version.hpp>

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

namespace version_test {

TEST(Version, Is_that_of_the_project) {
  std::ifstream file(TENSORPULL_HEADERS "/../../CMakeLists.txt");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_NE(text.find("project(tensorpull VERSION " + std::string(tensorpull::library_version) + " "), text.npos);
}

}  // namespace version_test
