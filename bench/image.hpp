// An image of one tensor, in memory of its own.
#pragma once

#include <tensorpull/image/dynamic.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace bench {

struct image {
  explicit image(std::size_t bytes)
      : memory(bytes), shape{bytes},
        views{{{.name = "w", .type = tensorpull::dtype::u8, .shape = shape, .data = memory.data()}}},
        table(std::move(*tensorpull::dynamic_image::make(std::span<const tensorpull::mutable_tensor_view>(views)))) {}
  image(image&&) = delete;
  std::vector<std::byte> memory;
  std::array<std::uint64_t, 1> shape;
  std::array<tensorpull::mutable_tensor_view, 1> views;
  tensorpull::dynamic_image table;
};

}  // namespace bench
