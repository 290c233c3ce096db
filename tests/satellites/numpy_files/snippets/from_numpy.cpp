// NEEDS tensorpull::numpy_files
// SNIPPET 1
#include "context.hpp"

#include "../support/zip_archive.hpp"

#include <filesystem>
#include <fstream>

// SNIPPET 2

int main() {
  const std::string path = "/tmp/tensorpull-numpy-" + std::to_string(::getpid()) + ".npy";
  std::ofstream(path, std::ios::binary) << test::npy("<i2", "(2,)", false, test::little(7, 2) + test::little(8, 2));
  auto owner = net::downloader::open({.listen = "127.0.0.1:0"});
  must(owner);

  // SNIPPET 3

  must(file && ref && file->image().schema().tensor_count == 1);
  std::filesystem::remove(path);
}
