// What the alternatives make from a model while the program runs: its tensors in image order, with their places. A
// run-time table alone fills it with one statement for each tensor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

struct image_table {
  struct entry {
    std::string name;
    std::string dtype;
    std::vector<std::size_t> shape;
    const void* data;
    std::size_t bytes;
    std::size_t offset;
  };
  std::vector<entry> entries;

  void add(const char* name, const char* dtype, std::vector<std::size_t> shape, const void* data, std::size_t bytes) {
    entries.push_back({name, dtype, std::move(shape), data, bytes, 0});
  }
  void arrange() {
    std::sort(entries.begin(), entries.end(), [](const entry& a, const entry& b) { return a.name < b.name; });
    std::size_t end = 0;
    for (entry& e : entries) {
      e.offset = end;
      end += e.bytes;
    }
  }
};
