// Files that are, or nearly are, safetensors files: made from the text of a header, in a folder of the test's own.
#pragma once

#include "own_folder.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace test {

/// Eight bytes of length, then the text, then the data. `length` other than the text's own: a lie.
inline std::string safetensors_file_of(std::string_view text, std::string_view data = {},
                                       std::uint64_t length = ~std::uint64_t{0}) {
  if (length == ~std::uint64_t{0}) length = text.size();
  std::string file;
  for (unsigned i = 0; i < 8; ++i) file += static_cast<char>(length >> (8 * i) & 0xff);
  return file.append(text).append(data);
}

/// `"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}`
inline std::string entry(std::string_view name, std::string_view dtype, std::string_view shape, std::uint64_t begin,
                         std::uint64_t end, std::string_view more = {}) {
  std::string s = "\"";
  s.append(name)
      .append("\":{\"dtype\":\"")
      .append(dtype)
      .append("\",\"shape\":[")
      .append(shape)
      .append("],\"data_offsets\":[");
  return s.append(std::to_string(begin)).append(",").append(std::to_string(end)).append("]").append(more).append("}");
}

inline std::string repeated(std::string_view text, std::size_t times) {
  std::string s;
  s.reserve(text.size() * times);
  for (std::size_t i = 0; i < times; ++i) s.append(text);
  return s;
}

class folder_test : public testing::Test {
 protected:
  void put(std::string_view content) const {
    std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
  }
  static std::string text_of(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  own_folder folder;
  std::filesystem::path directory = folder.path();
  std::string path = folder / "model.safetensors";
};

}  // namespace test
