// Files below a directory, as a test has them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

namespace test {

/// Paths, and what the files have.
using tree = std::map<std::string, std::string>;

inline std::string noise(std::size_t n, unsigned seed) {
  std::string out(n, '\0');
  for (char& c : out) c = static_cast<char>((seed = seed * 1'664'525 + 1'013'904'223) >> 24);
  return out;
}
inline tree read(const std::filesystem::path& at) {
  tree out;
  if (std::filesystem::exists(at))
    for (const auto& e : std::filesystem::recursive_directory_iterator(at))
      if (!e.is_directory()) {
        std::ifstream in(e.path(), std::ios::binary);
        out[std::filesystem::relative(e.path(), at).string()] = {std::istreambuf_iterator<char>(in), {}};
      }
  return out;
}

}  // namespace test
