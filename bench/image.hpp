// An image of one tensor, in memory of its own.
#pragma once

#include <tensorpull/image/dynamic.hpp>

#include <sys/mman.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
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

/// The same in huge pages, where the system has them.
struct huge_image {
  explicit huge_image(std::size_t bytes) : shape{bytes} {
    void* const p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) std::abort();
    (void)::madvise(p, bytes, MADV_HUGEPAGE);
    memory = {static_cast<std::byte*>(p), bytes};
    for (std::size_t i = 0; i < bytes; ++i) memory[i] = static_cast<std::byte>(i * 0x9e3779b97f4a7c15u >> 40);
    const tensorpull::mutable_tensor_view view{
        .name = "w", .type = tensorpull::dtype::u8, .shape = shape, .data = memory.data()};
    table.emplace(std::move(*tensorpull::dynamic_image::make(std::span(&view, 1))));
  }
  huge_image(huge_image&&) = delete;
  std::array<std::uint64_t, 1> shape;
  std::span<std::byte> memory;
  std::optional<tensorpull::dynamic_image> table;
};

}  // namespace bench
